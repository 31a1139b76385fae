-- reschedule.lua: move a waiting timer to another deadline.
--
-- Purpose: keep arming, payload and attempt, change when.
-- Parts: prelude
-- Flags: (none)
-- KEYS 1 meta, 2 due, 3 quarantine, 4 rec, 5 run
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 key, 5 when, as '+ms' from now or ms since 1970
-- Returns: secs, micros, code, deadline, arming id, attempt, why listeners could not be told (or '')
--   codes: 0 not armed, 1 rescheduled, 2 in flight (nothing was changed)
-- Errors: those of the prelude, BADDEADLINE (nothing was written)

local due, quarantine, rec, run = KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local key, at = ARGV[4], deadline_of(ARGV[5])
if not at then return redis.error_reply('BADDEADLINE a deadline lies beyond 2^43 ms') end

local record = redis.call('HGET', rec, key)
if not record or #record < 17 then return { secs, micros, 0, 0, '', 0, '' } end
local id = sub(record, 2, 9)
local state = redis.call('HGET', run, key)
if state and byte(state, 2) == 1 then return { secs, micros, 2, 0, id, 0, '' } end
if not state or #state < 25 then state = fresh_state(0) end

if known(record) and sub(state, 11, 17) == '\0\0\0\1\0\0\0' then
  -- Nothing has happened to it yet: its age is to count from the new deadline.
  redis.call('HSET', rec, key, sub(record, 1, 9) .. struct.pack('>I8', at) .. sub(record, 18))
  redis.call('HDEL', run, key)
else
  redis.call('HSET', run, key, sub(state, 1, 17) .. struct.pack('>I8', at) .. sub(state, 26))
end
wait_until(byte(state, 15) >= QUARANTINE_AT and quarantine or due, at, key)
wake()
return { secs, micros, 1, at, id, (struct.unpack('>I4', state, 11)), untold }
