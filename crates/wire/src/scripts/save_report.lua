-- save_report.lua: Store the report of a listener.
--
-- Purpose: Each listener stores its report every five seconds, so that operators see which listeners serve a topic. Old
--   reports of listeners that have ended are deleted.
-- Parts: (none)
-- Flags: allow-oom
-- KEYS 1 listeners
-- ARGV 1 ID of the listener, 2 its report, a JSON object; or '' when it ends, 3 after how many ms reports are deleted,
--   4 cursor of the last answer ('0' at first)
-- Returns: secs, micros, cursor, when the report before this one was written, in ms, or '' if there is none, because it was
--   deleted or is the first
-- Invariants: A report begins with the server's time, '{"at":<ms>,'. Each call examines a few reports, so that all are
--   examined in turn. None is deleted before its time.

local listeners = KEYS[1]
local sub = string.sub
local time = redis.call('TIME')
local secs, micros = tonumber(time[1]), tonumber(time[2])
local now = secs * 1000 + math.floor(micros / 1000)
local id, report, age = ARGV[1], ARGV[2], tonumber(ARGV[3])

local previous = redis.call('HGET', listeners, id) or ''
if report == '' then
  redis.call('HDEL', listeners, id)
else
  redis.call('HSET', listeners, id, '{"at":' .. string.format('%.0f', now) .. ',' .. sub(report, 2))
end
local page = redis.call('HSCAN', listeners, ARGV[4], 'COUNT', 10)
local old = {}
for i = 1, #page[2], 2 do
  local at = tonumber(string.match(page[2][i + 1], '^{"at":([0-9]+),'))
  -- A report from the future was written before the clock was set back.
  if not at or math.abs(now - at) > age then old[#old + 1] = page[2][i] end
end
if #old > 0 then redis.call('HDEL', listeners, unpack(old)) end
return { secs, micros, page[1], string.match(previous, '^{"at":([0-9]+),') or '' }
