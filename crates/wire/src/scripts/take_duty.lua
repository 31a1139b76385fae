-- take_duty.lua: who scans for an attached topic, and who enrols what is written.
--
-- Purpose: two listeners of a topic enrol the keys that they hear written, so that the death of one loses nothing; the
--   first of them scans for keys, too.
-- Parts: prelude
-- Flags: allow-oom
-- KEYS 1 meta, 2 duties
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel, 4 slot, 5 'hold' or 'release',
--   6 for how long in ms, 7 '1' from whoever hears nothing: it takes over only what has been free as long again, and
--   what it has is anybody's who hears; else '0'
-- Returns: secs, micros, what is its duty now: 0 nothing, 1 to enrol, 2 to scan and to enrol
-- Invariants: nothing depends on there being two: as many as do it do the same work once more.

local duties, slot = KEYS[2], ARGV[4]
local lasts, deaf = tonumber(ARGV[6]), ARGV[7] == '1'
local kept = redis.call('HMGET', duties, 'scanner', 'scanner_until', 'tracker', 'tracker_until')
local scans, enrols = kept[1] == slot, kept[3] == slot

if ARGV[5] == 'release' then
  if scans then redis.call('HDEL', duties, 'scanner', 'scanner_until') end
  if enrols then redis.call('HDEL', duties, 'tracker', 'tracker_until') end
  return { secs, micros, 0 }
end

local function is_free(ends)
  return not ends or tonumber(ends) + (deaf and lasts or 0) <= now
end

local ends = now + lasts
if deaf and (scans or enrols) then ends = now end
if scans or is_free(kept[2]) then
  if enrols then redis.call('HDEL', duties, 'tracker', 'tracker_until') end
  redis.call('HSET', duties, 'scanner', slot, 'scanner_until', ends)
  return { secs, micros, 2 }
elseif enrols or is_free(kept[4]) then
  redis.call('HSET', duties, 'tracker', slot, 'tracker_until', ends)
  return { secs, micros, 1 }
end
return { secs, micros, 0 }
