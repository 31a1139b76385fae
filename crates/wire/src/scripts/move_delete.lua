-- move_delete.lua: Delete entries that were moved to another partition.
--
-- Purpose: While a topic gets another number of partitions, entries are read, written to their new partition, and then
--   deleted here. The partition is closed (repartitioning). A call has at most 1,000 timers or dead letters.
-- Parts: (none)
-- Flags: allow-oom
-- KEYS 1 meta, 2 due, 3 quarantine, 4 timers, 5 timer_states, 6 queued, 7 dead, 8 dead_letters, 9 tried
-- ARGV 1 the ID under which the partition is closed (8 bytes), 2 'timers' or 'dead_letters', then their names
-- Returns: 1 deleted, 0 the partition is not closed under this ID (nothing was changed)
-- Invariants: Nothing is deleted from an open partition.

local meta, due, quarantine, timers, timer_states, queued = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local dead, dead_letters, tried = KEYS[7], KEYS[8], KEYS[9]
local found = redis.call('HMGET', meta, 'v', 'repartition_id')
if found[1] ~= 'repartitioning' or found[2] ~= ARGV[1] then return 0 end
local gone = { unpack(ARGV, 3) }
if #gone == 0 then return 1 end
if ARGV[2] == 'dead_letters' then
  redis.call('ZREM', dead, unpack(gone))
  redis.call('HDEL', dead_letters, unpack(gone))
  return 1
end
redis.call('ZREM', due, unpack(gone))
redis.call('ZREM', quarantine, unpack(gone))
local members = {}
for _, key in ipairs(gone) do
  members[#members + 1], members[#members + 2] = '<' .. key, '>' .. key
end
if tried then redis.call('ZREM', tried, unpack(members)) end
redis.call('HDEL', queued, unpack(gone))
redis.call('HDEL', timer_states, unpack(gone))
redis.call('HDEL', timers, unpack(gone))
return 1
