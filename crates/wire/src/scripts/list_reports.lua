-- list_reports.lua: Read a page of the reports of listeners.
--
-- Purpose: Operators see which listeners serve which topics. The answer has the server's time, by which a reader sees how
--   old a report is.
-- Parts: (none)
-- Flags: no-writes
-- KEYS 1 listeners
-- ARGV 1 cursor (0: the first page), 2 how many, roughly
-- Returns: secs, micros, cursor of the next page, or 0, then the reports
-- Invariants: A report that exists from the first page to the last is returned at least once, and perhaps twice.

local time = redis.call('TIME')
local page = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
local out = { tonumber(time[1]), tonumber(time[2]), page[1] }
for i = 2, #page[2], 2 do out[#out + 1] = page[2][i] end
return out
