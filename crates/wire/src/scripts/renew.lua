-- renew.lua: keep what is held.
--
-- Purpose: extend leases; at most 1,000 a call.
-- Parts: prelude
-- Flags: allow-oom
-- KEYS 1 meta, 2 due, 3 quarantine, 4 timer_states, 5 tried
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 lease in ms, then per timer: key, token
-- Returns: secs, micros, places (from 1) of the tokens that hold nothing any more
-- Invariants: only a claimed timer is extended, and only by its token.

local due, quarantine, timer_states = KEYS[2], KEYS[3], KEYS[4]
local tried = sub(KEYS[1], 1, -5) .. 'tried'
local expires = now + tonumber(ARGV[4])
local asked, lost = {}, {}
for at = 5, #ARGV, 2 do asked[#asked + 1] = ARGV[at] end

for i, state in ipairs(redis.call('HMGET', timer_states, unpack(asked))) do
  local key = asked[i]
  if state and byte(state, 2) == 1 and sub(state, 3, 10) == ARGV[4 + 2 * i] then
    redis.call('ZADD', (byte(state, 15) or 0) >= QUARANTINE_AT and quarantine or due, expires, key)
    if sub(state, 11) ~= UNTRIED then redis.call('ZADD', tried, 'XX', expires, '>' .. key) end
  else
    lost[#lost + 1] = i
  end
end
return { secs, micros, lost }
