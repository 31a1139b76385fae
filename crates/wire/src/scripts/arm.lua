-- arm.lua: Create or replace timers.
--
-- Purpose: A key without a timer gets a waiting timer. A waiting timer is replaced, and an arming that is queued behind it
--   ends. Behind a claimed timer the arming is queued, in place of one that was queued before. A call has at most 1,000
--   timers, and no key twice.
-- Parts: prelude, timers, tail_journal, markers, queued_timers
-- Flags: (none: refused up front when the server is out of memory)
-- KEYS 1 meta, 2 due, 3 quarantine, 4 timers, 5 timer_states, 6 queued, 7 tombstones, 8 tried
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 how, a character each: 'r' to replace a timer that exists or 'a' to leave it alone; '1' for a repeat of an unanswered
--   call, else '0'; '1' to set marker keys, else '0',
--   then per timer: key; when, as '+ms' from now or ms since 1970, or '' for that of the timer before; head, which is that
--   of the record (version byte, arming ID of 8 bytes) and, if a running attempt makes the call, the arming ID of its timer;
--   payload
-- Returns: per timer a byte with a code, a byte with the result for the marker key, the deadline in 8 bytes; behind the
--   last, if one of these has a text, why listeners could not be notified, a line break, why marker keys were refused
--   codes: 0 armed, 1 replaced, 2 queued behind the running attempt, 3 exists, 4 superseded (its arming was cancelled,
--   replaced or followed by another: this is a repeat, or arrived late), 5 the deadline is no number, or beyond 2^43 ms
--   marker keys: 0 none, 1 set, 2 the name is taken, 3 refused
-- Errors: those of the prelude, ATTACHED (nothing was written)
-- Invariants: A repeat is answered as the first call was, or by the fate of its arming since. It arms again a timer that has
--   succeeded or died since without a queued arming: these leave no tombstone. The deadline is never earlier than requested.
--   Timers that one call arms for one millisecond keep the order of the call.

if meta[4] == 'attached' then
  return redis.error_reply('ATTACHED ' .. KEYS[1] .. ' belongs to an attached topic: other programs write its keys')
end

local due, timers, timer_states, tombstones = KEYS[2], KEYS[4], KEYS[5], KEYS[7]
local only_absent, repeated, with_marker = byte(ARGV[4]) == 97, byte(ARGV[4], 2) == 49, byte(ARGV[4], 3) == 49
local BASE, WIDTH = 4, 4
local count = (#ARGV - BASE) / WIDTH
local NEVER = '\0\0\0\0\0\0\0\0'
-- The fraction of a score, in thousandths, orders timers of one millisecond: it is the microsecond in which the call began,
-- plus one for each further timer of the call. Microsecond 0 is no evidence of an order, because a clock that stands still,
-- as in tests, may give it to many calls. The fraction is then the number of timers that are due in that millisecond.
local first_fraction = math.min(micros % 1000, 1000 - count)
local function fraction_behind_others(at)
  local present = redis.call('ZCOUNT', due, at, '(' .. string.format('%.0f', at + 1))
  return math.min(present, 1000 - count)
end

-- `out` is the answer: two texts for each timer, the codes and the deadline. `unset_markers` has the numbers of the timers
-- whose marker keys are still to be set, because SET NX did not set them or was not tried.
local out, unset_markers

-- The fast path, for one timer of a new key: most arms do not share their call. It creates no table and no helper.
if count == 1 and not repeated then
  local key, head, at, text = ARGV[5], ARGV[7], deadline_of(ARGV[6])
  if at and redis.call('HEXISTS', timers, key) == 0 and not redis.call('ZSCORE', tombstones, 'a' .. sub(head, 2, 9)) then
    local packed = struct.pack('>I8', at)
    if first_fraction == 0 then first_fraction = fraction_behind_others(at) end
    -- A state without a record was left behind by an older timer of the key.
    redis.call('HDEL', timer_states, key)
    redis.call('ZADD', due, text .. string.format('.%03d', first_fraction), key)
    redis.call('HSET', timers, key, sub(head, 1, 9) .. packed .. ARGV[8])
    local wanted = with_marker and at > now
    local set = wanted and redis.pcall('SET', key, '1', 'PXAT', text, 'NX')
    local is_set = set and set.ok
    if redis.call('ZRANGE', due, '0', '0')[1] == key then publish('w' .. text) end
    if wake_up_error == '' and (is_set or not wanted) then return (is_set and '\0\1' or '\0\0') .. packed end
    out, unset_markers = { is_set and '\0\1' or '\0\0', packed }, { wanted and not is_set and 1 or nil }
  end
end

-- `fresh` has the numbers of the timers of new keys, `existing` those of keys with a record. `withdrawn` has for each arming
-- the score of its tombstone, if there is one.
local keys, records, withdrawn, fresh, existing = {}, {}, {}, {}, {}
local ats, texts_of = {}, {}
local earliest, earliest_fraction, earliest_key = math.huge, 0, nil
local scores, fields, size = {}, {}, 0
local at, packed, text

-- Adds a timer to the buffers of write_buffered.
local function buffer_timer(i, code)
  local key, head = keys[i], ARGV[BASE + WIDTH * i - 1]
  if #head > 9 then head = sub(head, 1, 9) end
  local fraction = first_fraction + i - 1
  scores[size + 1], scores[size + 2] = texts_of[i] .. string.format('.%03d', fraction), key
  fields[size + 1], fields[size + 2] = key, head .. out[2 * i] .. ARGV[BASE + WIDTH * i]
  size = size + 2
  out[2 * i - 1] = code
  local at = ats[i]
  if at < earliest or at == earliest and fraction < earliest_fraction then
    earliest, earliest_fraction, earliest_key = at, fraction, key
  end
end

-- Writes the buffered timers: first index and records, then marker keys, at last the wake-up.
local function write_buffered()
  if size == 0 then return end
  if #fresh > 0 and redis.call('EXISTS', timer_states) == 1 then
    local stale = {}
    for n, i in ipairs(fresh) do stale[n] = keys[i] end
    redis.call('HDEL', timer_states, unpack(stale))
  end
  redis.call('ZADD', due, unpack(scores))
  redis.call('HSET', timers, unpack(fields))
  if with_marker then
    for _, i in ipairs(fresh) do
      if ats[i] > now then
        local set = redis.pcall('SET', keys[i], '1', 'PXAT', texts_of[i], 'NX')
        if set and set.ok then out[2 * i - 1] = '\0\1' else unset_markers[#unset_markers + 1] = i end
      end
    end
  end
  if redis.call('ZRANGE', due, '0', '0')[1] == earliest_key then publish('w' .. string.format('%.0f', earliest)) end
end

if not out then
  out, unset_markers = {}, {}
  for i = 1, count do keys[i] = ARGV[BASE + WIDTH * (i - 1) + 1] end
  records = redis.call('HMGET', timers, unpack(keys))
  if redis.call('EXISTS', tombstones) == 1 then
    local ids = {}
    for i = 1, count do ids[i] = 'a' .. sub(ARGV[BASE + WIDTH * i - 1], 2, 9) end
    withdrawn = redis.call('ZMSCORE', tombstones, unpack(ids))
  end
  for i = 1, count do
    -- Timers of one call often have the same deadline, which is formatted once.
    local when = ARGV[BASE + WIDTH * i - 2]
    if when ~= '' or i == 1 then
      at, text = deadline_of(when)
      packed = at and struct.pack('>I8', at) or NEVER
      if at and micros % 1000 == 0 then first_fraction = fraction_behind_others(at) end
    end
    ats[i], texts_of[i], out[2 * i] = at, text, packed
    if not at then
      out[2 * i - 1] = '\5\0'
    elseif records[i] then
      existing[#existing + 1] = i
    elseif withdrawn[i] then
      out[2 * i - 1], out[2 * i] = '\4\0', NEVER
    else
      fresh[#fresh + 1] = i
      buffer_timer(i, '\0\0')
    end
  end
  -- The arming of the first call may have replaced a timer, and has ended since. This arm replaces none: without the
  -- tombstone 'r', a further repeat is answered 0 too.
  if repeated then
    for _, i in ipairs(fresh) do redis.call('ZREM', tombstones, 'r' .. sub(ARGV[BASE + WIDTH * i - 1], 2, 9)) end
  end
  if #existing == 0 then write_buffered() end
end

if #existing + #unset_markers == 0 and wake_up_error == '' then return table.concat(out) end

-- Parts are inserted here.

local new_tombstones, new_tombstones_size, cleared, moved = {}, 0, {}, {}
local now_text = string.format('%.0f', now)
local function buffer_tombstone(member)
  new_tombstones[new_tombstones_size + 1], new_tombstones[new_tombstones_size + 2] = now_text, member
  new_tombstones_size = new_tombstones_size + 2
end

local function is_indexed(key)
  return redis.call('ZSCORE', due, key) or redis.call('ZSCORE', quarantine, key)
end

-- Marks the state of an old timer for deletion: its attempts do not count for the new arming.
local function clear_state(key, state)
  cleared[#cleared + 1] = key
  if is_tried(state) then remove_tried(key) end
end

-- Arms a key that has a timer. Returns the code and the deadline; or nothing, if the timer was added to the buffers.
local function arm_existing(i, old, state, queued_value)
  local key, head, deadline = keys[i], ARGV[BASE + WIDTH * i - 1], ats[i]
  local id, running_id = sub(head, 2, 9), sub(head, 10)
  -- A timer without an index entry would wait for the slow repair.
  if (only_absent or state) and not is_indexed(key) then
    if withdrawn[i] then return '\4', 0 end
    if state then clear_state(key, state) end
    moved[#moved + 1] = i
    return buffer_timer(i, '\0\0')
  end
  if #old >= 17 and sub(old, 2, 9) == id then
    return redis.call('ZSCORE', tombstones, 'r' .. id) and '\1' or '\0', present_deadline(old, state)
  end
  -- The arming may still be queued although the attempt was released.
  local queued_arming = queued_value and select(2, queued_record(queued_value))
  if queued_arming and #queued_arming >= 17 and sub(queued_arming, 2, 9) == id then
    return '\2', (struct.unpack('>I8', queued_arming, 10))
  end
  if withdrawn[i] then return '\4', 0 end
  if only_absent then return '\3', 0 end
  if queued_arming then buffer_tombstone('a' .. sub(queued_arming, 2, 9)) end
  if queued_arming and LOGGED then log_timer_end('R', key, queued_arming, nil, 0) end
  if repeated then redis.call('ZREM', tombstones, 'r' .. id) end
  local record = sub(head, 1, 9) .. out[2 * i] .. ARGV[BASE + WIDTH * i]
  if state and byte(state, 2) == 1 then
    redis.call('HSET', queued, key, sub(old, 2, 9) == running_id and 'O' .. record or record)
    return '\2', deadline
  end
  if queued_arming then redis.call('HDEL', queued, key) end
  buffer_tombstone('r' .. id)
  buffer_tombstone('a' .. sub(old, 2, 9))
  if LOGGED then log_timer_end('R', key, old, state, 0) end
  moved[#moved + 1] = i
  local lost = state and byte(state, 15) or 0
  if lost > 0 then
    install_timer(key, record, deadline, lost)
    return '\1', deadline
  end
  if state then clear_state(key, state) end
  buffer_timer(i, '\1\0')
end

if #existing > 0 then
  local existing_keys = {}
  for n, i in ipairs(existing) do existing_keys[n] = keys[i] end
  local states = redis.call('HMGET', timer_states, unpack(existing_keys))
  local queued_values = redis.call('HMGET', queued, unpack(existing_keys))
  for n, i in ipairs(existing) do
    local counted = #moved
    local code, deadline = arm_existing(i, records[i], states[n], queued_values[n])
    if code then
      out[2 * i - 1], out[2 * i] = code .. '\0', struct.pack('>I8', deadline)
      -- A repeat may find its own marker key.
      if code == '\0' or code == '\1' and #moved == counted then unset_markers[#unset_markers + 1] = i end
    end
  end
  if new_tombstones_size > 0 then add_tombstones(new_tombstones) end
  if #cleared > 0 then redis.call('HDEL', timer_states, unpack(cleared)) end
  write_buffered()
  publish_wake_ups()
end

if with_marker then
  for _, i in ipairs(moved) do
    out[2 * i - 1] = sub(out[2 * i - 1], 1, 1) .. set_marker(keys[i], texts_of[i], 1, true)
  end
  -- The marker key may exist already, or the name is taken, or the key is refused.
  for _, i in ipairs(unset_markers) do
    local deadline = string.format('%.0f', (struct.unpack('>I8', out[2 * i])))
    out[2 * i - 1] = sub(out[2 * i - 1], 1, 1) .. set_marker(ARGV[BASE + WIDTH * (i - 1) + 1], deadline, 1, false)
  end
end
if LOGGED then flush_log() end
return table.concat(out) .. error_suffix(refused)
