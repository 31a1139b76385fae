-- cancel.lua: withdraw timers.
--
-- Purpose: end a timer and everything kept behind it; at most 1,000 a call.
-- Parts: prelude, succession
-- Flags: allow-oom
-- KEYS 1 meta, 2 due, 3 quarantine, 4 rec, 5 run, 6 next, 7 tombstones
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 '1' for a repeat of an unanswered call, else '0',
--   then per timer: key, id of this cancel (8 bytes)
-- Returns: secs, micros, then per timer: code, deadline of what ended
--   (an empty string where nothing did, where a repeat finds its own work done,
--   and where it cannot be read); last why listeners could not be told (or '')
--   codes: 0 not armed, 1 cancelled, 2 in flight (the running attempt is fenced)
-- Invariants: once this returned, no attempt starts; a running one can no
--   longer settle, and its holder is told by 'f' token key on the channel.

local repeated = ARGV[4] == '1'
local fences = {}

-- By which a trigger key is known. Written by others, it can be any number.
local function known_by(deadline)
  return deadline > 0 and deadline < MAX_DEADLINE and deadline or ''
end

local function cancel(key, id)
  if repeated then
    if redis.call('ZSCORE', tombstones, 'c' .. id) then return 1, '' end
    if redis.call('ZSCORE', tombstones, 'f' .. id) then return 2, '' end
  end
  local record = redis.call('HGET', rec, key)
  if not record then return 0, '' end
  local state = redis.call('HGET', run, key)
  local running = state and byte(state, 2) == 1
  local kept = redis.call('HGET', nxt, key)
  tombstone((running and 'f' or 'c') .. id)
  tombstone('a' .. sub(record, 2, 9))
  if kept then tombstone('a' .. sub(select(2, kept_record(kept)), 2, 9)) end
  redis.call('HDEL', nxt, key)
  remove(key)
  if running then fences[#fences + 1] = 'f' .. sub(state, 3, 10) .. key end
  return running and 2 or 1, known_by(present_deadline(record, state))
end

local out = { secs, micros }
for at = 5, #ARGV, 2 do
  local n = #out
  out[n + 1], out[n + 2] = cancel(ARGV[at], ARGV[at + 1])
end
for _, fence in ipairs(fences) do tell(fence) end
out[#out + 1] = untold
return out
