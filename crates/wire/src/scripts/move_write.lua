-- move_write.lua: Write entries that move from another partition.
--
-- Purpose: While a topic gets another number of partitions, this writes the entries that move_read has returned into their
--   new partition, which is closed (repartitioning).
-- Parts: (none)
-- Flags: allow-oom
-- KEYS 1 meta, 2 due, 3 quarantine, 4 timers, 5 timer_states, 6 queued, 7 tombstones, 8 dead, 9 dead_letters, 10 tried
-- ARGV 1 the ID under which the partition is closed (8 bytes), then per value: number of its key behind meta, its name
--   there, its value or score
-- Returns: 1 written, 0 the partition is not closed under this ID (nothing was changed)
-- Invariants: Nothing is written into an open partition. The script runs on a full server, because the other partition then
--   deletes as much as this one gets.

local found = redis.call('HMGET', KEYS[1], 'v', 'repartition_id')
if found[1] ~= 'repartitioning' or found[2] ~= ARGV[1] then return 0 end
local places = { KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10] }
local ZSETS = { [1] = true, [2] = true, [6] = true, [7] = true, [9] = true }
for i = 2, #ARGV - 2, 3 do
  local place, name, value = tonumber(ARGV[i]), ARGV[i + 1], ARGV[i + 2]
  if ZSETS[place] then
    redis.call('ZADD', places[place], value, name)
  else
    redis.call('HSET', places[place], name, value)
  end
end
return 1
