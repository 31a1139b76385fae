-- set_marker.lua: set trigger keys.
--
-- Purpose: give timers their trigger keys where these lie elsewhere than the
--   index: in a cluster, one key a call. On one server the other scripts do it.
-- Parts: markers
-- Flags: (none)
-- KEYS the trigger keys
-- ARGV per key: deadline in ms since 1970; attempt to come, from 1 to 9999, or 0: as the key says it, else 1;
--   '1' if this moves the deadline of a timer that was there before (an arm
--   that was answered "replaced", a reschedule), else '0'
-- Returns: per key 0 none is set, as the deadline has passed, 1 set, 2 the name holds what
--   others have written (nothing was changed), 3 the caller has no right to it

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

-- Here stand the parts.

local function attempt_of(key, asked)
  if asked > 0 then return asked end
  local present = redis.pcall('GETRANGE', key, '0', '3')
  return type(present) == 'string' and tonumber(present) or 1
end

local out = {}
for i, key in ipairs(KEYS) do
  local at = 3 * (i - 1)
  local attempt = attempt_of(key, tonumber(ARGV[at + 2]))
  out[i] = string.byte(set_marker(key, ARGV[at + 1], attempt, ARGV[at + 3] == '1'))
end
return out
