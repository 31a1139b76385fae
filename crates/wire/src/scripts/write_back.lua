-- write_back.lua: Write an attached key back until its retry.
--
-- Purpose: If a topic asks for it, the key of a failed attempt exists again until the next attempt. It is written only if
--   the name is free.
-- Parts: (none)
-- Flags: (none)
-- KEYS 1 the key
-- ARGV 1 deadline in ms since 1970, 2 'string' or 'dump', 3 value
-- Returns: 1 written, 0 the name is taken (nothing was changed; a repeat finds the key of the first call), 2 the deadline
--   has passed
-- Invariants: A key that its writer has created again is never changed.

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
if tonumber(ARGV[1]) <= now then return 2 end
if ARGV[2] == 'string' then
  redis.call('SET', KEYS[1], ARGV[3], 'PXAT', ARGV[1])
else
  redis.call('RESTORE', KEYS[1], ARGV[1], ARGV[3], 'ABSTTL')
end
return 1
