-- arm.lua: create or replace timers.
--
-- Purpose: put timers into the index; at most 1,000 a call, no key twice.
-- Parts: prelude, timers, tail_journal, markers, queued_timers
-- Flags: (none: refused up front when the server is out of memory)
-- KEYS 1 meta, 2 due, 3 quarantine, 4 timers, 5 timer_states, 6 queued, 7 tombstones, 8 tried
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 how, a character each: 'r' to replace or 'a' to leave a timer alone that is there;
--   '1' for a repeat of an unanswered call, else '0'; '1' to set trigger keys, else '0',
--   then per timer: key; when, as '+ms' from now or ms since 1970, or '' for that of the timer before;
--   head, which is the record's (version byte, arming id of 8 bytes) and, where a running attempt makes
--   the call, the arming id of its timer; payload
-- Returns: per timer a byte with a code, a byte with what became of the trigger key, the deadline in 8
--   bytes; behind the last, where one of these is to be said, why listeners could not be told, a line
--   break, why trigger keys were refused
--   codes: 0 armed, 1 replaced, 2 kept for after the running attempt,
--   3 exists, 4 superseded (its arming was withdrawn or has been followed by
--   another: this is a repeat, or was held up on its way), 5 the deadline is no number, or beyond 2^43 ms
--   trigger keys: 0 none, 1 set, 2 the name is taken, 3 refused
-- Errors: those of the prelude, ATTACHED (nothing was written)
-- Invariants: a repeat is answered as the first call was, or by what has become
--   of its arming since; the deadline is never earlier than asked for; timers
--   armed for one millisecond in one call order come out in that order.

if meta[4] == 'attached' then
  return redis.error_reply('ATTACHED ' .. KEYS[1] .. ' belongs to a topic whose keys are written by others')
end

local due, timers, timer_states, tombstones = KEYS[2], KEYS[4], KEYS[5], KEYS[7]
local absent, repeated, with_marker = byte(ARGV[4]) == 97, byte(ARGV[4], 2) == 49, byte(ARGV[4], 3) == 49
local BASE, WIDTH = 4, 4
local count = (#ARGV - BASE) / WIDTH
local NEVER = '\0\0\0\0\0\0\0\0'
-- Timers for the same millisecond keep the order of arming by a fraction: the microsecond in which their
-- call began, and one more for each. Where that is the first it says nothing (a clock that stands still, as in
-- tests, may give it to many calls), and those that are there are counted.
local step = math.min(micros % 1000, 1000 - count)
local function behind_others(at)
  local there = redis.call('ZCOUNT', due, at, '(' .. string.format('%.0f', at + 1))
  return math.min(there, 1000 - count)
end

-- What is answered, two texts for each timer; and the places of those whose trigger key could not simply be set.
local out, unset

-- One timer whose key has none: nearly every arm that does not share its call. No table and no helper is made.
if count == 1 and not repeated then
  local key, head, at, text = ARGV[5], ARGV[7], deadline_of(ARGV[6])
  if at and redis.call('HEXISTS', timers, key) == 0 and not redis.call('ZSCORE', tombstones, 'a' .. sub(head, 2, 9)) then
    local packed = struct.pack('>I8', at)
    if step == 0 then step = behind_others(at) end
    -- What a lost index entry left behind must not speak for a new timer.
    redis.call('HDEL', timer_states, key)
    redis.call('ZADD', due, text .. string.format('.%03d', step), key)
    redis.call('HSET', timers, key, sub(head, 1, 9) .. packed .. ARGV[8])
    local wanted = with_marker and at > now
    local set = wanted and redis.pcall('SET', key, '1', 'PXAT', text, 'NX')
    local is_set = set and set.ok
    if redis.call('ZRANGE', due, '0', '0')[1] == key then publish('w' .. text) end
    if wake_up_error == '' and (is_set or not wanted) then return (is_set and '\0\1' or '\0\0') .. packed end
    out, unset = { is_set and '\0\1' or '\0\0', packed }, { wanted and not is_set and 1 or nil }
  end
end

local keys, records, withdrawn, fresh, there = {}, {}, {}, {}, {}
local ats, texts_of = {}, {}
local earliest, earliest_place, earliest_key = math.huge, 0, nil
local scores, fields, size = {}, {}, 0
local at, packed, text

-- Puts a timer down to be written.
local function put(i, code)
  local key, head = keys[i], ARGV[BASE + WIDTH * i - 1]
  if #head > 9 then head = sub(head, 1, 9) end
  local place = step + i - 1
  scores[size + 1], scores[size + 2] = texts_of[i] .. string.format('.%03d', place), key
  fields[size + 1], fields[size + 2] = key, head .. out[2 * i] .. ARGV[BASE + WIDTH * i]
  size = size + 2
  out[2 * i - 1] = code
  local at = ats[i]
  if at < earliest or at == earliest and place < earliest_place then
    earliest, earliest_place, earliest_key = at, place, key
  end
end

-- Writes all that was put down: index and records first, then trigger keys, and at last the word to listeners.
local function write()
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
        if set and set.ok then out[2 * i - 1] = '\0\1' else unset[#unset + 1] = i end
      end
    end
  end
  if redis.call('ZRANGE', due, '0', '0')[1] == earliest_key then publish('w' .. string.format('%.0f', earliest)) end
end

if not out then
  out, unset = {}, {}
  for i = 1, count do keys[i] = ARGV[BASE + WIDTH * (i - 1) + 1] end
  records = redis.call('HMGET', timers, unpack(keys))
  if redis.call('EXISTS', tombstones) == 1 then
    local ids = {}
    for i = 1, count do ids[i] = 'a' .. sub(ARGV[BASE + WIDTH * i - 1], 2, 9) end
    withdrawn = redis.call('ZMSCORE', tombstones, unpack(ids))
  end
  for i = 1, count do
    -- Many have the same deadline: it is written out once.
    local when = ARGV[BASE + WIDTH * i - 2]
    if when ~= '' or i == 1 then
      at, text = deadline_of(when)
      packed = at and struct.pack('>I8', at) or NEVER
      if at and micros % 1000 == 0 then step = behind_others(at) end
    end
    ats[i], texts_of[i], out[2 * i] = at, text, packed
    if not at then
      out[2 * i - 1] = '\5\0'
    elseif records[i] then
      there[#there + 1] = i
    elseif withdrawn[i] then
      out[2 * i - 1], out[2 * i] = '\4\0', NEVER
    else
      fresh[#fresh + 1] = i
      put(i, '\0\0')
    end
  end
  -- What these have replaced before they ended is not what they do now.
  if repeated then
    for _, i in ipairs(fresh) do redis.call('ZREM', tombstones, 'r' .. sub(ARGV[BASE + WIDTH * i - 1], 2, 9)) end
  end
  if #there == 0 then write() end
end

if #there + #unset == 0 and wake_up_error == '' then return table.concat(out) end

-- Here stand the parts.

local ended, ends, cleared, moved = {}, 0, {}, {}
local now_text = string.format('%.0f', now)
local function add_ended(member)
  ended[ends + 1], ended[ends + 2] = now_text, member
  ends = ends + 2
end

local function is_indexed(key)
  return redis.call('ZSCORE', due, key) or redis.call('ZSCORE', quarantine, key)
end

-- What its timer has been through is not the new arming's.
local function clear(key, state)
  cleared[#cleared + 1] = key
  if is_tried(state) then remove_tried(key) end
end

-- A key that has a timer already: the code, the deadline; or nothing, where it was put down to be written.
local function over(i, old, state, kept)
  local key, head, deadline = keys[i], ARGV[BASE + WIDTH * i - 1], ats[i]
  local id, by = sub(head, 2, 9), sub(head, 10)
  -- What has lost its place in the index runs no more, and would wait for the slow repair.
  if (absent or state) and not is_indexed(key) then
    if withdrawn[i] then return '\4', 0 end
    if state then clear(key, state) end
    moved[#moved + 1] = i
    return put(i, '\0\0')
  end
  if #old >= 17 and sub(old, 2, 9) == id then
    return redis.call('ZSCORE', tombstones, 'r' .. id) and '\1' or '\0', present_deadline(old, state)
  end
  -- What was kept for later may still be, though the attempt has been handed back.
  kept = kept and select(2, queued_record(kept))
  if kept and #kept >= 17 and sub(kept, 2, 9) == id then return '\2', (struct.unpack('>I8', kept, 10)) end
  if withdrawn[i] then return '\4', 0 end
  if absent then return '\3', 0 end
  if kept then add_ended('a' .. sub(kept, 2, 9)) end
  if kept and WATCHED then log_end('R', key, kept, nil, 0) end
  if repeated then redis.call('ZREM', tombstones, 'r' .. id) end
  local record = sub(head, 1, 9) .. out[2 * i] .. ARGV[BASE + WIDTH * i]
  if state and byte(state, 2) == 1 then
    redis.call('HSET', queued, key, sub(old, 2, 9) == by and 'O' .. record or record)
    return '\2', deadline
  end
  if kept then redis.call('HDEL', queued, key) end
  add_ended('r' .. id)
  add_ended('a' .. sub(old, 2, 9))
  if WATCHED then log_end('R', key, old, state, 0) end
  moved[#moved + 1] = i
  local lost = state and byte(state, 15) or 0
  if lost > 0 then
    install(key, record, deadline, lost)
    return '\1', deadline
  end
  if state then clear(key, state) end
  put(i, '\1\0')
end

if #there > 0 then
  local taken = {}
  for n, i in ipairs(there) do taken[n] = keys[i] end
  local states, kept = redis.call('HMGET', timer_states, unpack(taken)), redis.call('HMGET', queued, unpack(taken))
  for n, i in ipairs(there) do
    local counted = #moved
    local code, deadline = over(i, records[i], states[n], kept[n])
    if code then
      out[2 * i - 1], out[2 * i] = code .. '\0', struct.pack('>I8', deadline)
      -- A repeat finds its own trigger key.
      if code == '\0' or code == '\1' and #moved == counted then unset[#unset + 1] = i end
    end
  end
  if ends > 0 then add_tombstones(ended) end
  if #cleared > 0 then redis.call('HDEL', timer_states, unpack(cleared)) end
  write()
  publish_wake_ups()
end

if with_marker then
  for _, i in ipairs(moved) do
    out[2 * i - 1] = sub(out[2 * i - 1], 1, 1) .. set_marker(keys[i], texts_of[i], 1, true)
  end
  -- Those whose trigger key may be there already, or is taken, or refused.
  for _, i in ipairs(unset) do
    local deadline = string.format('%.0f', (struct.unpack('>I8', out[2 * i])))
    out[2 * i - 1] = sub(out[2 * i - 1], 1, 1) .. set_marker(ARGV[BASE + WIDTH * (i - 1) + 1], deadline, 1, false)
  end
end
if WATCHED then flush_log() end
return table.concat(out) .. error_suffix(refused)
