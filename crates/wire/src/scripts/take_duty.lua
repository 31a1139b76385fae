-- take_duty.lua: Take, renew or release a duty for an attached topic.
--
-- Purpose: Two listeners of an attached topic track the keys whose writes they receive, so that the loss of one loses no
--   key. The first of them, the scanner, also scans the database.
-- Parts: prelude
-- Flags: allow-oom
-- KEYS 1 meta, 2 duties
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel, 4 ID of the caller, 5 'hold' or 'release',
--   6 for how long in ms, 7 '1' from a listener that receives no events, else '0': it takes only a duty that has been free
--   for the time of 6, and from its first renewal on a listener that receives events may take the duty from it
-- Returns: secs, micros, the duty of the caller now: 0 none, 1 to track, 2 to scan and to track
-- Invariants: Nothing is lost if more than two listeners have a duty: they repeat the same work.

local duties, caller = KEYS[2], ARGV[4]
local duration, no_events = tonumber(ARGV[6]), ARGV[7] == '1'
local stored = redis.call('HMGET', duties, 'scanner', 'scanner_until', 'tracker', 'tracker_until')
local scans, tracks = stored[1] == caller, stored[3] == caller

if ARGV[5] == 'release' then
  if scans then redis.call('HDEL', duties, 'scanner', 'scanner_until') end
  if tracks then redis.call('HDEL', duties, 'tracker', 'tracker_until') end
  return { secs, micros, 0 }
end

local function is_free(expires)
  return not expires or tonumber(expires) + (no_events and duration or 0) <= now
end

local expires = now + duration
if no_events and (scans or tracks) then expires = now end
if scans or is_free(stored[2]) then
  if tracks then redis.call('HDEL', duties, 'tracker', 'tracker_until') end
  redis.call('HSET', duties, 'scanner', caller, 'scanner_until', expires)
  return { secs, micros, 2 }
elseif tracks or is_free(stored[4]) then
  redis.call('HSET', duties, 'tracker', caller, 'tracker_until', expires)
  return { secs, micros, 1 }
end
return { secs, micros, 0 }
