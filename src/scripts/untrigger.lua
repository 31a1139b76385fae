-- untrigger.lua: delete a trigger key that belongs to an ended arming.
--
-- Purpose: after a cancel, leave no key behind that would expire for nothing.
-- Parts: (none)
-- Flags: allow-oom
-- KEYS 1 the trigger key
-- ARGV 1 arming id in hexadecimal
-- Returns: 1 deleted, 0 the name is free or holds something else

if redis.call('TYPE', KEYS[1]).ok ~= 'string' then return 0 end
local value = redis.call('GETRANGE', KEYS[1], 0, 255)
if not string.find(value, '"arming":"' .. ARGV[1] .. '"', 1, true) then return 0 end
return redis.call('DEL', KEYS[1])
