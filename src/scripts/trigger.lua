-- trigger.lua: set trigger keys.
--
-- Purpose: give timers the TTL keys that other programs can see and hear
--   expire. In a cluster one key a call; elsewhere up to 1,000.
-- Parts: (none)
-- Flags: (none)
-- KEYS the trigger keys
-- ARGV per key: deadline in ms since 1970, value
-- Returns: per key 1 set, 0 the name holds a foreign value (nothing was
--   changed), 2 the deadline has passed (nothing was set)
-- Invariants: a foreign value is never touched. SET NX would not do: at a
--   retry the old key is mostly still in its own last millisecond.

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local OURS = '{"attempt":'
local out = {}
for i, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key).ok
  local ours = kind == 'string' and redis.call('GETRANGE', key, 0, #OURS - 1) == OURS
  if kind ~= 'none' and not ours then
    out[i] = 0
  elseif tonumber(ARGV[2 * i - 1]) <= now then
    if ours then redis.call('DEL', key) end
    out[i] = 2
  else
    redis.call('SET', key, ARGV[2 * i], 'PXAT', ARGV[2 * i - 1])
    out[i] = 1
  end
end
return out
