-- move_read.lua: Read entries that move to another partition.
--
-- Purpose: While a topic gets another number of partitions, this reads all values of timers, dead letters or tombstones of a
--   closed partition. A call has at most 1,000 names.
-- Parts: (none)
-- Flags: no-writes
-- KEYS 1 due, 2 quarantine, 3 timers, 4 timer_states, 5 queued, 6 tombstones, 7 dead, 8 dead_letters, 9 tried
-- ARGV 1 'timers', 'dead_letters' or 'tombstones', 2 how many bytes at most, then their names
-- Returns: how many of the names were read, then per value: number of its key among these KEYS, its name there, its value or
--   score
-- Invariants: Nothing is written. The caller has closed the partition, which this does not check. The name that reaches the
--   limit of bytes is the last that is read.

local TRIED = 9
local kinds = { timers = { 1, 2, 3, 4, 5, TRIED }, dead_letters = { 7, 8 }, tombstones = { 6 } }
local ZSETS = { [1] = true, [2] = true, [6] = true, [7] = true, [TRIED] = true }
local places = { KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9] }
local room, out = tonumber(ARGV[2]), { 0 }
for i = 3, #ARGV do
  if room <= 0 then break end
  local name = ARGV[i]
  for _, place in ipairs(places[TRIED] and kinds[ARGV[1]] or { unpack(kinds[ARGV[1]], 1, 5) }) do
    -- `tried` has two members for each timer.
    for _, member in ipairs(place == TRIED and { '<' .. name, '>' .. name } or { name }) do
      local value = redis.call(ZSETS[place] and 'ZSCORE' or 'HGET', places[place], member)
      if value then
        local n = #out
        out[n + 1], out[n + 2], out[n + 3] = place, member, value
        room = room - #member - #value
      end
    end
  end
  out[1] = i - 2
end
return out
