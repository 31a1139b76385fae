-- set_marker.lua: Set marker keys.
--
-- Purpose: In a cluster, marker keys are on other servers than their timers; this script sets one marker key in a call. On a
--   single server the scripts that arm and move timers do it themselves.
-- Parts: markers
-- Flags: (none)
-- KEYS the marker keys
-- ARGV per key: deadline in ms since 1970; attempt to come, from 1 to 9999, or 0: the number in the key, else 1; '1' if this
--   moves the deadline of a timer that existed before (an arm that was answered "replaced", a reschedule), else '0'
-- Returns: per key 0 none is set, because the deadline has passed, 1 set, 2 another program uses the name (nothing was
--   changed), 3 the caller has no right to it

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

-- Parts are inserted here.

local function attempt_of(key, requested)
  if requested > 0 then return requested end
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
