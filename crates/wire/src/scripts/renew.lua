-- renew.lua: Extend the leases of claimed timers.
--
-- Purpose: A listener renews its leases while handlers run, so that no other listener claims their timers. The timers stay
--   claimed, and their scores move to the new end of the lease. A call has at most 1,000 timers.
-- Parts: prelude
-- Flags: allow-oom
-- KEYS 1 meta, 2 due, 3 quarantine, 4 timer_states, 5 tried
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 lease in ms, then per timer: key, token
-- Returns: secs, micros, numbers in the call (from 1) of the tokens that hold nothing any more
-- Invariants: Only a claimed timer is extended, and only with the token that holds it.

local due, quarantine, timer_states = KEYS[2], KEYS[3], KEYS[4]
local tried = sub(KEYS[1], 1, -5) .. 'tried'
local expires = now + tonumber(ARGV[4])
local keys, gone = {}, {}
for at = 5, #ARGV, 2 do keys[#keys + 1] = ARGV[at] end

for i, state in ipairs(redis.call('HMGET', timer_states, unpack(keys))) do
  local key = keys[i]
  if state and byte(state, 2) == 1 and sub(state, 3, 10) == ARGV[4 + 2 * i] then
    redis.call('ZADD', (byte(state, 15) or 0) >= QUARANTINE_AT and quarantine or due, expires, key)
    if sub(state, 11) ~= UNTRIED then redis.call('ZADD', tried, 'XX', expires, '>' .. key) end
  else
    gone[#gone + 1] = i
  end
end
return { secs, micros, gone }
