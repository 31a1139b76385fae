-- destroy.lua: Delete the contents of a closed partition.
--
-- Purpose: An operator destroys a topic whose partitions are closed (destroying -> absent). Timers go in pages of at most
--   1,000, because the caller deletes their marker keys by name; the final call deletes the rest.
-- Parts: (none)
-- Flags: allow-oom
-- KEYS 1 meta, 2 due, 3 quarantine, 4 timers, 5 timer_states, 6 queued, 7 tombstones, 8 dead, 9 dead_letters, 10 claimers,
--   11 tracked, 12 checks, 13 expiry_history, 14 expiry_history_old, 15 duties, 16 values, 17 journal, 18 tried
-- ARGV 1 wake-up channel, 2 how many timers to name at most; 0 in the final call,
--   then the keys to delete: those that the previous call has named
-- Returns: code, then per timer: key, deadline in ms ('' if it is claimed)
--   codes: 0 there is no partition, 1 it is closed, 2 it is open (0 and 2: nothing was changed)
-- Invariants: Only a closed partition is changed, and no script adds anything to it. The final call unlinks all names, and
--   no caller waits for the memory. The listener of a claimed timer gets the message 'f' token key on the channel.

local meta, due, quarantine, timers, timer_states, queued = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local tombstones, dead, dead_letters, claimers, tracked = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local checks, expiry_history, expiry_history_old, duties, values = KEYS[12], KEYS[13], KEYS[14], KEYS[15], KEYS[16]
local journal, tried = KEYS[17], KEYS[18]

local byte, sub = string.byte, string.sub
local version = redis.call('HGET', meta, 'v')
if version ~= 'destroying' then return { version and 2 or 0 } end
local most = tonumber(ARGV[2])
if most == 0 then
  redis.call('UNLINK', meta, due, quarantine, timers, timer_states, queued, tombstones, dead, dead_letters, claimers,
    tracked, checks, expiry_history, expiry_history_old, duties, values)
  -- Callers of an earlier release do not pass these names.
  if journal then redis.call('UNLINK', journal) end
  if tried then redis.call('UNLINK', tried) end
  return { 1 }
end

-- The index is changed last: if an earlier command is refused, a repeat still finds the timers there.
local gone = { unpack(ARGV, 3) }
if #gone > 0 then
  local members = {}
  for _, key in ipairs(gone) do
    members[#members + 1], members[#members + 2] = '<' .. key, '>' .. key
  end
  if tried then redis.call('ZREM', tried, unpack(members)) end
  redis.call('HDEL', queued, unpack(gone))
  redis.call('HDEL', timer_states, unpack(gone))
  redis.call('HDEL', timers, unpack(gone))
  redis.call('ZREM', quarantine, unpack(gone))
  redis.call('ZREM', due, unpack(gone))
end

local page = redis.call('ZRANGE', due, 0, most - 1, 'WITHSCORES')
if #page == 0 then page = redis.call('ZRANGE', quarantine, 0, most - 1, 'WITHSCORES') end
local keys, out, fences = {}, { 1 }, {}
for i = 1, #page, 2 do keys[#keys + 1] = page[i] end
local states = #keys > 0 and redis.call('HMGET', timer_states, unpack(keys)) or {}
for i, key in ipairs(keys) do
  local state = states[i]
  local running = state and byte(state, 2) == 1
  out[2 * i] = key
  out[2 * i + 1] = running and '' or string.format('%.0f', math.floor(tonumber(page[2 * i])))
  if running then fences[#fences + 1] = 'f' .. sub(state, 3, 10) .. key end
end
-- Under pcall: a caller without the right to publish has done the rest.
for _, fence in ipairs(fences) do redis.pcall('SPUBLISH', ARGV[1], fence) end
return out
