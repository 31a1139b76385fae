-- canary.lua: Create the next heartbeat key.
--
-- Purpose: A heartbeat key lives for 1 ms. Its expired event proves to listeners that events arrive, and numbers the stream
--   of events.
-- Parts: (none)
-- Flags: allow-oom
-- KEYS 1 the key that names the last heartbeat key by '<number>:<number of the one before>'; the name of a heartbeat key is
--   that of this key, a colon and this value
-- ARGV 1 TTL in ms
-- Returns: the value for the new heartbeat key and 1; or that for the last one and 0 while that one exists
-- Invariants: Heartbeat keys expire in the order of their numbers: the script first reads the last one, which makes the
--   server expire it. A number is the clock in ms, or the last number plus one if that is more. Numbers therefore grow even
--   if clock or data were set back. A heartbeat key whose TTL is longer than it was given, because the clock was set back,
--   does not block the next.

local last = redis.call('GET', KEYS[1])
local ttl = last and redis.call('PTTL', KEYS[1] .. ':' .. last) or -2
if ttl >= 0 and ttl <= tonumber(ARGV[1]) then return { last, 0 } end
local time = redis.call('TIME')
local previous = tonumber(last and string.match(last, '^[0-9]+')) or 0
if previous >= 2 ^ 53 then previous = 0 end -- above this, doubles cannot count
local number = math.max(previous + 1, tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
local name = string.format('%.0f', number) .. ':' .. string.format('%.0f', previous)
redis.call('SET', KEYS[1], name)
redis.call('SET', KEYS[1] .. ':' .. name, '', 'PX', ARGV[1])
return { name, 1 }
