-- delete_marker.lua: Delete the marker key of a cancelled timer.
--
-- Purpose: In a cluster, cancel cannot delete a marker key, which is on another server. Without this call, other programs
--   would see the key of a cancelled timer expire.
-- Parts: markers
-- Flags: allow-oom
-- KEYS 1 the marker key
-- ARGV 1 the deadline that the cancel has answered, in ms since 1970
-- Returns: 1 deleted, 0 the name is free, or the key has another deadline or another program's value

-- Parts are inserted here.

return delete_marker(KEYS[1], tonumber(ARGV[1])) and 1 or 0
