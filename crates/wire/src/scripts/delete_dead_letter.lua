-- delete_dead_letter.lua: Delete one dead letter.
--
-- Purpose: An operator deletes a dead letter that nobody will replay. Its record and state are lost.
-- Parts: prelude
-- Flags: allow-oom
-- KEYS 1 meta, 2 dead, 3 dead_letters
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel, 4 name of the dead letter
-- Returns: secs, micros, 1 if it existed, else 0

redis.call('HDEL', KEYS[3], ARGV[4])
return { secs, micros, redis.call('ZREM', KEYS[2], ARGV[4]) }
