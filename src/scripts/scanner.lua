-- scanner.lua: who scans for an attached topic.
--
-- Purpose: one listener of a topic scans for keys and enrols those that it hears written.
-- Parts: prelude
-- Flags: allow-oom
-- KEYS 1 meta, 2 scanner
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel, 4 slot, 5 'hold' or 'release',
--   6 for how long in ms, 7 '1' where it takes over only what has been free as long again, else '0'
-- Returns: secs, micros, 1 if it is the scanner now, else 0
-- Invariants: nothing depends on there being one: two scanners do the same work twice.

local kept = redis.call('HMGET', KEYS[2], 'slot', 'until')
local lasts = tonumber(ARGV[6])
local mine = kept[1] == ARGV[4]
local free = not kept[2] or tonumber(kept[2]) + (ARGV[7] == '1' and lasts or 0) <= now
if ARGV[5] == 'release' then
  if mine then redis.call('HDEL', KEYS[2], 'slot', 'until') end
elseif mine or free then
  redis.call('HSET', KEYS[2], 'slot', ARGV[4], 'until', now + lasts)
  return { secs, micros, 1 }
end
return { secs, micros, 0 }
