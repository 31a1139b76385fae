-- list_reports.lua: read what listeners have reported.
--
-- Purpose: a page of their last reports, and the time by which they are old.
-- Parts: (none)
-- Flags: no-writes
-- KEYS 1 listeners
-- ARGV 1 where to go on, or 0, 2 how many, roughly
-- Returns: secs, micros, where to go on, or 0, then the reports
-- Invariants: what is there from the first page to the last is answered, and may be so twice.

local time = redis.call('TIME')
local page = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
local out = { tonumber(time[1]), tonumber(time[2]), page[1] }
for i = 2, #page[2], 2 do out[#out + 1] = page[2][i] end
return out
