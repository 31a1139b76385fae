-- init.lua: create a partition's meta, or read it.
--
-- Purpose: settle once, for all languages, what the partition looks like; also
--   on a full server, as whoever comes to drain it begins here.
-- Parts: (none)
-- Flags: allow-oom
-- KEYS 1 meta
-- ARGV 1 wire version, 2 number of partitions, 3 'attached' where other programs write the keys; else
--   'managed', or nothing
-- Returns: wire version, number of partitions, kind, as they stand in Redis
-- Invariants: what stands there is never changed.

local new = redis.call('HSETNX', KEYS[1], 'v', ARGV[1])
redis.call('HSETNX', KEYS[1], 'partitions', ARGV[2])
if new == 1 and ARGV[3] == 'attached' then redis.call('HSET', KEYS[1], 'kind', ARGV[3]) end
local meta = redis.call('HMGET', KEYS[1], 'v', 'partitions', 'kind')
return { meta[1], meta[2], meta[3] or 'managed' }
