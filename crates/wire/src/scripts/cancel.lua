-- cancel.lua: withdraw timers.
--
-- Purpose: end timers and everything kept behind them; at most 1,000 a call, no key twice.
-- Parts: prelude, timers, tail_journal, markers, queued_timers
-- Flags: allow-oom
-- KEYS 1 meta, 2 due, 3 quarantine, 4 timers, 5 timer_states, 6 queued, 7 tombstones, 8 tried
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 '1' to delete trigger keys, else '0',
--   then per timer: key, id of this cancel (8 bytes)
-- Returns: per timer a byte with a code, a byte that is 0, the deadline of what ended in 8 bytes (0 where nothing
--   did, where this cancel finds its own work done, and where it cannot be read); behind the last, where that is
--   to be said, why listeners could not be told, and a line break
--   codes: 0 not armed, 1 cancelled, 2 in flight (the running attempt is fenced), 3 the same of a timer
--   whose deadline is still to come (this very call has ended it)
-- Invariants: once this returned, no attempt starts; a running one can no
--   longer settle, and its holder is told by 'f' token key on the channel. A
--   cancel that comes again, as a repeat or held up on its way, ends nothing.

local triggered = ARGV[4] == '1'
local keys, ids = {}, {}
for at = 5, #ARGV, 2 do
  keys[#keys + 1], ids[#ids + 1] = ARGV[at], 'c' .. ARGV[at + 1]
end
local done_before = redis.call('ZMSCORE', tombstones, unpack(ids))
local records = redis.call('HMGET', timers, unpack(keys))
local states = redis.call('HMGET', timer_states, unpack(keys))
local kept = redis.call('HMGET', queued, unpack(keys))

local now_text = string.format('%.0f', now)
-- What ends, by where it has to be removed, and what there is to be said of it.
local ended, gone, held, followed, suspects, fences, deadlines, out = {}, {}, {}, {}, {}, {}, {}, {}

local ends = 0
local function add_ended(member, at)
  ended[ends + 1], ended[ends + 2] = at, member
  ends = ends + 2
end

local function cancel(key, id, record, state, after)
  local running = state and byte(state, 2) == 1
  -- Half a millisecond says that an attempt was running.
  add_ended(id, running and now_text .. '.5' or now_text)
  add_ended('a' .. sub(record, 2, 9), now_text)
  gone[#gone + 1] = key
  if WATCHED then log_end('C', key, record, state, 0) end
  if state then
    held[#held + 1] = key
    if is_tried(state) then remove_tried(key) end
  end
  if after then
    local _, behind = queued_record(after)
    add_ended('a' .. sub(behind, 2, 9), now_text)
    followed[#followed + 1] = key
    if WATCHED then log_end('C', key, behind, nil, 0) end
  end
  if (state and byte(state, 15) or 0) >= QUARANTINE_AT then suspects[#suspects + 1] = key end
  if running then fences[#fences + 1] = 'f' .. sub(state, 3, 10) .. key end
  -- Written by others, it can be any number.
  local deadline = present_deadline(record, state)
  if deadline <= 0 or deadline >= MAX_DEADLINE then deadline = 0 end
  deadlines[#gone] = deadline
  return (running and (deadline > now and '\3' or '\2') or '\1'), deadline
end

for i, key in ipairs(keys) do
  local code, deadline = '\0', 0
  if done_before[i] then
    code = tonumber(done_before[i]) % 1 > 0 and '\2' or '\1'
  elseif records[i] then
    code, deadline = cancel(key, ids[i], records[i], states[i], kept[i])
  end
  out[#out + 1] = code .. '\0' .. struct.pack('>I8', deadline)
end

if #gone > 0 then
  add_tombstones(ended)
  if #followed > 0 then redis.call('HDEL', queued, unpack(followed)) end
  if #suspects > 0 then redis.call('ZREM', quarantine, unpack(suspects)) end
  redis.call('ZREM', due, unpack(gone))
  redis.call('HDEL', timers, unpack(gone))
  -- The state, and with it the token, goes last: should an earlier command be refused, a repeat finds the
  -- timer held and finishes the rest.
  if #held > 0 then redis.call('HDEL', timer_states, unpack(held)) end
  for n, key in ipairs(triggered and gone or {}) do
    if deadlines[n] > 0 then delete_marker(key, deadlines[n]) end
  end
  for _, fence in ipairs(fences) do publish(fence) end
  if WATCHED then flush_log() end
end
return table.concat(out) .. error_suffix(refused)
