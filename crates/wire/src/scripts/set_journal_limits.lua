-- set_journal_limits.lua: Set how many ends of timers a partition keeps.
--
-- Purpose: A program switches the journal of a topic on or off when it registers the topic. The other scripts keep in the
--   journal how timers end.
-- Parts: prelude
-- Flags: allow-oom
-- KEYS 1 meta, 2 journal
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel, 4 how many ends, or 0 to keep none and delete the journal,
--   5 for how long, in ms
-- Returns: secs, micros, 1 if that is a change, else 0
-- Invariants: Limits that are set already are not written again, so that a full server needs no memory.

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
