-- canary.lua: make the next canary.
--
-- Purpose: a key of 1 ms, whose expired event proves that events flow, and numbers their stream.
-- Parts: (none)
-- Flags: allow-oom
-- KEYS 1 the last canary: '<number>:<number of the one before>'. A canary's own name is this key's, a
--   colon and what this key says
-- ARGV 1 TTL in ms
-- Returns: the new canary, 1; or the last, 0 where it is still alive
-- Invariants: canaries are heard in the order of their numbers: reading the last one first makes the
--   server expire it before there is a next. Numbers are the clock's milliseconds, or the last number and
--   one: they grow, even where data or the clock were set back together with all that is compared to them.
--   One that has longer to live than it was given, since the clock was set back, holds up no other.

local last = redis.call('GET', KEYS[1])
local left = last and redis.call('PTTL', KEYS[1] .. ':' .. last) or -2
if left >= 0 and left <= tonumber(ARGV[1]) then return { last, 0 } end
local time = redis.call('TIME')
local before = tonumber(last and string.match(last, '^[0-9]+')) or 0
if before >= 2 ^ 53 then before = 0 end -- nobody counts on from there
local number = math.max(before + 1, tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
local name = string.format('%.0f', number) .. ':' .. string.format('%.0f', before)
redis.call('SET', KEYS[1], name)
redis.call('SET', KEYS[1] .. ':' .. name, '', 'PX', ARGV[1])
return { name, 1 }
