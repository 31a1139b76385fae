-- cancel.lua: Cancel timers.
--
-- Purpose: Ends waiting timers, and claimed timers, whose running attempts are fenced: they can no longer settle. Armings
--   that are queued behind them end too, and each ended arming leaves a tombstone. A call has at most 1,000 timers, and no
--   key twice.
-- Parts: prelude, timers, tail_journal, markers, queued_timers
-- Flags: allow-oom
-- KEYS 1 meta, 2 due, 3 quarantine, 4 timers, 5 timer_states, 6 queued, 7 tombstones, 8 tried
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 '1' to delete marker keys, else '0',
--   then per timer: key, ID of this cancel (8 bytes)
-- Returns: per timer a byte with a code, a byte that is 0, the deadline of the ended timer in 8 bytes (0 if none ended, if
--   this cancel was executed before, or if the deadline cannot be read); behind the last, if listeners could not be
--   notified, why, and a line break
--   codes: 0 not armed, 1 cancelled, 2 in flight (the running attempt is fenced), 3 in flight, with a deadline that is still
--   to come (only from the call that ended the timer, not from its repeat)
-- Invariants: After this call no attempt starts. A running attempt can no longer settle, and its listener gets the message
--   'f' token key on the channel. A cancel that arrives again, as a repeat or late, ends nothing.

local with_markers = ARGV[4] == '1'
local keys, ids = {}, {}
for at = 5, #ARGV, 2 do
  keys[#keys + 1], ids[#ids + 1] = ARGV[at], 'c' .. ARGV[at + 1]
end
local done_before = redis.call('ZMSCORE', tombstones, unpack(ids))
local records = redis.call('HMGET', timers, unpack(keys))
local states = redis.call('HMGET', timer_states, unpack(keys))
local queued_values = redis.call('HMGET', queued, unpack(keys))

local now_text = string.format('%.0f', now)
-- The buffers. `gone` has the keys of the timers that this call ends, and `deadlines` their deadlines in that order.
-- `with_state`, `with_queued` and `in_quarantine` have some of these keys.
local new_tombstones, gone, with_state, with_queued, in_quarantine, fences, deadlines, out = {}, {}, {}, {}, {}, {}, {}, {}

local new_tombstones_size = 0
local function buffer_tombstone(member, at)
  new_tombstones[new_tombstones_size + 1], new_tombstones[new_tombstones_size + 2] = at, member
  new_tombstones_size = new_tombstones_size + 2
end

local function cancel(key, id, record, state, queued_value)
  local running = state and byte(state, 2) == 1
  -- Half a millisecond in the score marks a running attempt, so that a repeat is answered 2.
  buffer_tombstone(id, running and now_text .. '.5' or now_text)
  buffer_tombstone('a' .. sub(record, 2, 9), now_text)
  gone[#gone + 1] = key
  if LOGGED then log_timer_end('C', key, record, state, 0) end
  if state then
    with_state[#with_state + 1] = key
    if is_tried(state) then remove_tried(key) end
  end
  if queued_value then
    local _, next_record = queued_record(queued_value)
    buffer_tombstone('a' .. sub(next_record, 2, 9), now_text)
    with_queued[#with_queued + 1] = key
    if LOGGED then log_timer_end('C', key, next_record, nil, 0) end
  end
  if (state and byte(state, 15) or 0) >= QUARANTINE_AT then in_quarantine[#in_quarantine + 1] = key end
  if running then fences[#fences + 1] = 'f' .. sub(state, 3, 10) .. key end
  -- Another program may have written any number.
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
    code, deadline = cancel(key, ids[i], records[i], states[i], queued_values[i])
  end
  out[#out + 1] = code .. '\0' .. struct.pack('>I8', deadline)
end

if #gone > 0 then
  add_tombstones(new_tombstones)
  if #with_queued > 0 then redis.call('HDEL', queued, unpack(with_queued)) end
  if #in_quarantine > 0 then redis.call('ZREM', quarantine, unpack(in_quarantine)) end
  redis.call('ZREM', due, unpack(gone))
  redis.call('HDEL', timers, unpack(gone))
  -- The state, which has the token, is deleted last: if an earlier command is refused, a repeat still finds the timer
  -- claimed and finishes the rest.
  if #with_state > 0 then redis.call('HDEL', timer_states, unpack(with_state)) end
  for n, key in ipairs(with_markers and gone or {}) do
    if deadlines[n] > 0 then delete_marker(key, deadlines[n]) end
  end
  for _, fence in ipairs(fences) do publish(fence) end
  if LOGGED then flush_log() end
end
return table.concat(out) .. error_suffix(refused)
