-- save_report.lua: a listener says how it is.
--
-- Purpose: keep the last report of each listener, and forget those that have long said nothing.
-- Parts: (none)
-- Flags: allow-oom
-- KEYS 1 listeners
-- ARGV 1 id of the listener, 2 its report, a JSON object; or '' when it leaves, 3 after how many ms reports are
--   forgotten, 4 where the last look for such has ended ('0' at first)
-- Returns: secs, micros, where this look ended, when the report before this one was written, in ms, or '' if there is
--   none: then somebody has taken it away
-- Invariants: a report begins with the server's time, '{"at":<ms>,'. Each call looks at a few; so all are looked
--   at in turn, and none is forgotten before its time.

local listeners = KEYS[1]
local sub = string.sub
local time = redis.call('TIME')
local secs, micros = tonumber(time[1]), tonumber(time[2])
local now = secs * 1000 + math.floor(micros / 1000)
local id, report, age = ARGV[1], ARGV[2], tonumber(ARGV[3])

local before = redis.call('HGET', listeners, id) or ''
if report == '' then
  redis.call('HDEL', listeners, id)
else
  redis.call('HSET', listeners, id, '{"at":' .. string.format('%.0f', now) .. ',' .. sub(report, 2))
end
local looked = redis.call('HSCAN', listeners, ARGV[4], 'COUNT', 10)
local old = {}
for i = 1, #looked[2], 2 do
  local at = tonumber(string.match(looked[2][i + 1], '^{"at":([0-9]+),'))
  -- One from the future was written before the clock was set back.
  if not at or math.abs(now - at) > age then old[#old + 1] = looked[2][i] end
end
if #old > 0 then redis.call('HDEL', listeners, unpack(old)) end
return { secs, micros, looked[1], string.match(before, '^{"at":([0-9]+),') or '' }
