-- pause.lua: stop and start the claims of a partition.
--
-- Purpose: a paused partition keeps and takes timers, and gives none out.
-- Parts: prelude, timers
-- Flags: allow-oom
-- KEYS 1 meta
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 why it is paused, or '' to resume
-- Returns: secs, micros, why it was paused before (or ''), why listeners could not be told (or '')

if ARGV[4] == '' then
  -- Also what is about to get another number of partitions: whoever is at that is told.
  redis.call('HDEL', KEYS[1], 'paused', 'paused_before', 'target_partitions', 'repartition_id')
  news.w = 0
  publish_wake_ups()
else
  redis.call('HSET', KEYS[1], 'paused', ARGV[4])
end
return { secs, micros, meta[3] or '', wake_up_error }
