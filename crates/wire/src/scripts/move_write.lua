-- move_write.lua: write what moves from another partition.
--
-- Purpose: entries as `take` has read them; as many as that answers.
-- Parts: (none)
-- Flags: allow-oom
-- KEYS 1 meta, 2 due, 3 quarantine, 4 timers, 5 timer_states, 6 queued, 7 tombstones, 8 dead, 9 dead_letters,
--   10 tried
-- ARGV 1 the id under which the partition is closed (8 bytes), then per entry: the place of its key behind meta, its name
--   there, what it says
-- Returns: 1 written, 0 the partition is not closed under this id (nothing was changed)
-- Invariants: nothing comes into a partition that is open. What it takes the other gives up, so that a full server does
--   not stop it half-way.

local found = redis.call('HMGET', KEYS[1], 'v', 'repartition_id')
if found[1] ~= 'repartitioning' or found[2] ~= ARGV[1] then return 0 end
local places = { KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10] }
local ZSETS = { [1] = true, [2] = true, [6] = true, [7] = true, [9] = true }
for i = 2, #ARGV - 2, 3 do
  local place, name, says = tonumber(ARGV[i]), ARGV[i + 1], ARGV[i + 2]
  if ZSETS[place] then
    redis.call('ZADD', places[place], says, name)
  else
    redis.call('HSET', places[place], name, says)
  end
end
return 1
