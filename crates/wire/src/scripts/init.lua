-- init.lua: Create the meta of a partition, or read it.
--
-- Purpose: The first caller decides the wire version, the number of partitions and the kind of a partition (absent -> open).
--   It also works on a full server, because a program that drains the server begins here.
-- Parts: (none)
-- Flags: allow-oom
-- KEYS 1 meta
-- ARGV 1 wire version, 2 number of partitions, 3 'attached' if other programs write the keys; else 'managed', or nothing
-- Returns: wire version, number of partitions, kind, as Redis has them; of a closed partition, destroying or repartitioning
--   in place of the version
-- Invariants: Fields that exist are never changed.

local new = redis.call('HSETNX', KEYS[1], 'v', ARGV[1])
redis.call('HSETNX', KEYS[1], 'partitions', ARGV[2])
if new == 1 and ARGV[3] == 'attached' then redis.call('HSET', KEYS[1], 'kind', ARGV[3]) end
local meta = redis.call('HMGET', KEYS[1], 'v', 'partitions', 'kind')
return { meta[1], meta[2], meta[3] or 'managed' }
