-- delete_marker.lua: delete the trigger key of an ended arming.
--
-- Purpose: where `cancel` could not, leave no key behind that would expire for nothing.
-- Parts: markers
-- Flags: allow-oom
-- KEYS 1 the trigger key
-- ARGV 1 the deadline that the cancel has answered, in ms since 1970
-- Returns: 1 deleted, 0 the name is free or holds something else

-- Here stand the parts.

return delete_marker(KEYS[1], tonumber(ARGV[1])) and 1 or 0
