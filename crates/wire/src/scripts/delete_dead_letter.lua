-- delete_dead_letter.lua: forget a dead letter.
--
-- Purpose: remove one letter.
-- Parts: prelude
-- Flags: allow-oom
-- KEYS 1 meta, 2 dead, 3 dead_letters
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel, 4 letter (its name)
-- Returns: secs, micros, 1 if there was one, else 0

redis.call('HDEL', KEYS[3], ARGV[4])
return { secs, micros, redis.call('ZREM', KEYS[2], ARGV[4]) }
