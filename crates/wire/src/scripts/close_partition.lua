-- close_partition.lua: Close a partition before its topic is destroyed, or open it again.
--
-- Purpose: An operator destroys a topic by closing its partitions one after the other (open or absent -> destroying). From
--   then on all scripts with the prelude refuse the partition, those of older releases too, because its wire version is the
--   word destroying. 'open' undoes it (destroying -> open).
-- Parts: (none)
-- Flags: allow-oom
-- KEYS 1 meta, 2 due, 3 quarantine, 4 timers, 5 dead, 6 tracked
-- ARGV 1 wire version, 2 number of partitions, 3 'ask' to change nothing, 'close' to close it if it has no timer and no
--   tracked key, 'detach' to close it if it has no timer and no dead letter, 'force' to close it in any case under the ID of
--   this destroy, 'force_or_join' to do so but keep the ID under which it is closed by force already, 'open' to open it
--   again, 4 'attached' if other programs write the keys; else 'managed', 5 the ID of this destroy if it uses force (8
--   bytes); to open: the ID under which it is closed; '' without force
-- Returns: 1 if it is closed now, else 0; the ID under which it is closed by force (or ''); kind; how many timers, tracked
--   keys and dead letters it holds; the most partitions that the topic has had, or 0 if the number never changed
-- Errors: REPARTITIONING, WIREVERSION, PARTITIONS (nothing was written)
-- Invariants: A partition that was closed without force holds no timer, and gets none. It may hold dead letters after
--   'close', and tracked keys after 'detach'.

local meta, due, quarantine, timers, dead, tracked = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local mode, id = ARGV[3], ARGV[5]
local found = redis.call('HMGET', meta, 'v', 'partitions', 'kind', 'force_id', 'max_partitions')
local closed, forced = found[1] == 'destroying', found[4] or ''
if found[1] == 'repartitioning' then
  return redis.error_reply('REPARTITIONING ' .. KEYS[1] .. ' belongs to a topic that gets another number of partitions')
end
if found[1] and not closed and found[1] ~= ARGV[1] then
  return redis.error_reply('WIREVERSION ' .. KEYS[1] .. ' has wire version ' .. found[1] .. ', the caller ' .. ARGV[1])
end
if found[2] and found[2] ~= ARGV[2] then
  return redis.error_reply('PARTITIONS ' .. KEYS[1] .. ' has ' .. found[2] .. ' partitions, the caller ' .. ARGV[2])
end

-- If index and records disagree, the larger number counts.
local indexed = redis.call('ZCARD', due) + redis.call('ZCARD', quarantine)
local armed = math.max(redis.call('HLEN', timers), indexed)
local tracked_keys, kept_dead_letters = redis.call('HLEN', tracked), redis.call('ZCARD', dead)

local force = mode == 'force' or mode == 'force_or_join'
local empty = mode == 'close' and armed + tracked_keys == 0 or mode == 'detach' and armed + kept_dead_letters == 0
if mode == 'open' and closed and forced == id then
  redis.call('HDEL', meta, 'force_id')
  redis.call('HSET', meta, 'v', ARGV[1])
  closed, forced = false, ''
elseif force or empty or closed and (mode == 'close' or mode == 'detach') then
  if not found[1] and ARGV[4] == 'attached' then redis.call('HSET', meta, 'kind', ARGV[4]) end
  if mode == 'force' or mode == 'force_or_join' and forced == '' then forced = id end
  redis.call('HSET', meta, 'v', 'destroying', 'partitions', ARGV[2], 'force_id', forced)
  closed = true
end
local kind = found[3] or found[1] and 'managed' or ARGV[4]
return { closed and 1 or 0, forced, kind, armed, tracked_keys, kept_dead_letters, found[5] or '0' }
