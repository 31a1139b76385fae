-- init.lua: create a partition's meta, or read it.
--
-- Purpose: settle once, for all languages, what the partition looks like; also
--   on a full server, as whoever comes to drain it begins here.
-- Parts: (none)
-- Flags: allow-oom
-- KEYS 1 meta
-- ARGV 1 wire version, 2 number of partitions
-- Returns: wire version, number of partitions, as they stand in Redis
-- Invariants: what stands there is never changed.

redis.call('HSETNX', KEYS[1], 'v', ARGV[1])
redis.call('HSETNX', KEYS[1], 'p', ARGV[2])
return redis.call('HMGET', KEYS[1], 'v', 'p')
