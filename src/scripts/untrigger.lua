-- untrigger.lua: delete the trigger key of an ended arming.
--
-- Purpose: after a cancel, leave no key behind that would expire for nothing.
-- Parts: (none)
-- Flags: allow-oom
-- KEYS 1 the trigger key
-- ARGV 1 the deadline that the cancel has answered, in ms since 1970
-- Returns: 1 deleted, 0 the name is free or holds something else

if redis.call('PEXPIRETIME', KEYS[1]) ~= tonumber(ARGV[1]) then return 0 end
if redis.call('TYPE', KEYS[1]).ok ~= 'string' then return 0 end
if not string.find(redis.call('GETRANGE', KEYS[1], 0, 4), '^[1-9][0-9]?[0-9]?[0-9]?$') then return 0 end
return redis.call('DEL', KEYS[1])
