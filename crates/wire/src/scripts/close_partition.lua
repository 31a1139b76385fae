-- close_partition.lua: close a partition for its topic's end, or open it again.
--
-- Purpose: a topic that is destroyed is closed first, one partition after the other: from then on all other scripts
--   refuse, those of older programs too, as its wire version is none.
-- Parts: (none)
-- Flags: allow-oom
-- KEYS 1 meta, 2 due, 3 quarantine, 4 timers, 5 dead, 6 tracked
-- ARGV 1 wire version, 2 number of partitions, 3 'ask' to change nothing, 'close' to close it if nothing is armed,
--   'detach' to do so if nothing is armed and no dead letter is kept, whatever is enrolled, 'force' to do so whatever it
--   holds, 'force_or_join' the same but under the id that stands there, if one does, 'open' to open it again, 4 'attached' where other programs write the keys; else
--   'managed', 5 the id of whoever uses force (8 bytes); to open: under which it is closed; '' without force
-- Returns: 1 if it is closed now, else 0; under which id by force (or ''); kind; how many timers, enrolled keys and dead
--   letters it holds; the most partitions that the topic has had, or 0 where it never had another number
-- Errors: REPARTITIONING, WIREVERSION, PARTITIONS (nothing was written)
-- Invariants: what was closed without force is empty, but for enrolled keys after 'detach', and stays so.

local meta, due, quarantine, timers, dead, tracked = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local how, id = ARGV[3], ARGV[5]
local found = redis.call('HMGET', meta, 'v', 'partitions', 'kind', 'force_id', 'max_partitions')
local closed, forced = found[1] == 'destroying', found[4] or ''
if found[1] == 'repartitioning' then
  return redis.error_reply('REPARTITIONING ' .. KEYS[1] .. ' is of a topic that gets another number of partitions')
end
if found[1] and not closed and found[1] ~= ARGV[1] then
  return redis.error_reply('WIREVERSION ' .. KEYS[1] .. ' says ' .. found[1] .. ', the caller ' .. ARGV[1])
end
if found[2] and found[2] ~= ARGV[2] then
  return redis.error_reply('PARTITIONS ' .. KEYS[1] .. ' says ' .. found[2] .. ', the caller ' .. ARGV[2])
end

-- Where index and records disagree, whatever there is more of counts.
local waiting = redis.call('ZCARD', due) + redis.call('ZCARD', quarantine)
local armed = math.max(redis.call('HLEN', timers), waiting)
local tracked_keys, kept_letters = redis.call('HLEN', tracked), redis.call('ZCARD', dead)

local force = how == 'force' or how == 'force_or_join'
local empty = how == 'close' and armed + tracked_keys == 0 or how == 'detach' and armed + kept_letters == 0
if how == 'open' and closed and forced == id then
  redis.call('HDEL', meta, 'force_id')
  redis.call('HSET', meta, 'v', ARGV[1])
  closed, forced = false, ''
elseif force or empty or closed and (how == 'close' or how == 'detach') then
  if not found[1] and ARGV[4] == 'attached' then redis.call('HSET', meta, 'kind', ARGV[4]) end
  if how == 'force' or how == 'force_or_join' and forced == '' then forced = id end
  redis.call('HSET', meta, 'v', 'destroying', 'partitions', ARGV[2], 'force_id', forced)
  closed = true
end
local kind = found[3] or found[1] and 'managed' or ARGV[4]
return { closed and 1 or 0, forced, kind, armed, tracked_keys, kept_letters, found[5] or '0' }
