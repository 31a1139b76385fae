-- set_journal_limits.lua: say how much of what has ended a partition keeps.
--
-- Purpose: a topic's program asks for the journal, or for its end, when it registers the topic.
-- Parts: prelude
-- Flags: allow-oom
-- KEYS 1 meta, 2 journal
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel, 4 how many ends, or 0: none any more, and what is kept
--   goes, 5 for how long, in ms
-- Returns: secs, micros, 1 if that is news, else 0
-- Invariants: what stands there already is not written again, so that a full server is not asked for anything.

local journal = KEYS[2]
if ARGV[4] == '0' then
  if not meta[6] then return { secs, micros, 0 } end
  redis.call('HDEL', KEYS[1], 'journal')
  redis.call('UNLINK', journal)
  return { secs, micros, 1 }
end
local bounds = ARGV[4] .. ':' .. ARGV[5]
if meta[6] == bounds then return { secs, micros, 0 } end
redis.call('HSET', KEYS[1], 'journal', bounds)
return { secs, micros, 1 }
