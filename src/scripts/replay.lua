-- replay.lua: bring a dead letter back to life.
--
-- Purpose: arm the letter's record again, for now, with a new arming id.
-- Parts: prelude
-- Flags: (none)
-- KEYS 1 meta, 2 due, 3 quarantine, 4 rec, 5 run, 6 dead, 7 letters
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 letter (arming id and key), 5 new arming id (8 bytes)
-- Returns: secs, micros, code, deadline
--   codes: 0 no such letter, 1 replayed, 2 the key has a timer (nothing was
--   changed), 3 the letter's record is unreadable (nothing was changed)
-- Invariants: a repeat finds its own arming and answers as the first call.

local due, quarantine, rec, run, dead, letters = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local member, id = ARGV[4], ARGV[5]
local key = sub(member, 9)
local present = redis.call('HGET', rec, key)
if present then
  if sub(present, 2, 9) == id then return { secs, micros, 1, (struct.unpack('>I8', present, 10)) } end
  return { secs, micros, 2, 0 }
end
local letter = redis.call('HGET', letters, member)
if not letter then return { secs, micros, 0, 0 } end
local record = #letter >= 14 and byte(letter) == 1 and sub(letter, 15 + struct.unpack('>I4', letter, 11)) or ''
if #record < 17 or byte(record) ~= 1 then return { secs, micros, 3, 0 } end

redis.call('HDEL', run, key)
redis.call('HSET', rec, key, '\1' .. id .. struct.pack('>I8', ceil) .. sub(record, 18))
wait_until(due, ceil, key)
redis.call('ZREM', dead, member)
redis.call('HDEL', letters, member)
wake()
return { secs, micros, 1, ceil }
