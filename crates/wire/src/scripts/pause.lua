-- pause.lua: Pause or resume a partition.
--
-- Purpose: A paused partition answers claims without timers, but timers can be armed, cancelled and settled (open ->
--   paused). A resume publishes a wake-up, so that listeners claim (paused -> open).
-- Parts: prelude, timers
-- Flags: allow-oom
-- KEYS 1 meta
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 why it is paused, or '' to resume
-- Returns: secs, micros, why it was paused before (or ''), why listeners could not be notified (or '')

if ARGV[4] == '' then
  -- A resume also ends the pause of a repartition, which then finds the partition resumed.
  redis.call('HDEL', KEYS[1], 'paused', 'paused_before', 'target_partitions', 'repartition_id')
  to_announce.w = 0
  publish_wake_ups()
else
  redis.call('HSET', KEYS[1], 'paused', ARGV[4])
end
return { secs, micros, meta[3] or '', wake_up_error }
