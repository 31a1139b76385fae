-- reschedule.lua: Move waiting timers to other deadlines.
--
-- Purpose: A waiting timer keeps its arming, payload and attempt, and waits for another deadline. A claimed timer is left
--   unchanged. A repeat moves the timer once more, and '+ms' then counts from the repeat. A call has at most 1,000 timers,
--   and no key twice.
-- Parts: prelude, timers, markers
-- Flags: (none)
-- KEYS 1 meta, 2 due, 3 quarantine, 4 timers, 5 timer_states, 6 tried
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel, 4 '1' to move marker keys, else '0',
--   then per timer: key; when, as '+ms' from now or ms since 1970
-- Returns: per timer a byte with a code, a byte with the result for the marker key, the deadline in 8 bytes; behind the
--   last, if one of these has a text, why listeners could not be notified, a line break, why marker keys were refused
--   codes: 0 not armed, 1 rescheduled, 2 in flight (nothing was changed), 3 the deadline is no number, or beyond 2^43 ms
--   (nothing was changed)
--   marker keys: 0 none, 1 set, 2 the name is taken, 3 refused

local due, quarantine, timers, timer_states = KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local with_markers = ARGV[4] == '1'
local keys = {}
for at = 5, #ARGV, 2 do keys[#keys + 1] = ARGV[at] end
local records, states = redis.call('HMGET', timers, unpack(keys)), redis.call('HMGET', timer_states, unpack(keys))

-- The buffers of write commands: fields and values, fields to delete, scores and members.
local new_records, new_states, deleted_states, due_scores, quarantine_scores = {}, {}, {}, {}, {}
local earliest = { [due] = math.huge, [quarantine] = math.huge }
local function append_pair(list, first, second)
  list[#list + 1] = first
  list[#list + 1] = second
end

local function move_timer(key, record, state, at, text)
  if not record or #record < 17 then return '\0', 0 end
  if state and byte(state, 2) == 1 then return '\2', 0 end
  if not at then return '\3', 0 end
  local old_state = state
  if not state or #state < 25 then state = fresh_state(0) end
  if is_readable(record) and sub(state, 11, 17) == '\0\0\0\1\0\0\0' then
    -- The timer was not tried yet: the new deadline becomes the first one, from which its age counts.
    append_pair(new_records, key, sub(record, 1, 9) .. struct.pack('>I8', at) .. sub(record, 18))
    if old_state then
      deleted_states[#deleted_states + 1] = key
      if is_tried(old_state) then remove_tried(key) end
    end
  else
    move_tried(key, at)
    append_pair(new_states, key, sub(state, 1, 17) .. struct.pack('>I8', at) .. sub(state, 26))
  end
  local index = byte(state, 15) >= QUARANTINE_AT and quarantine or due
  append_pair(index == due and due_scores or quarantine_scores, text, key)
  earliest[index] = math.min(earliest[index], at)
  return '\1', at, text, (struct.unpack('>I4', state, 11))
end

local codes, ats, texts_of, attempts, out = {}, {}, {}, {}, {}
for i, key in ipairs(keys) do
  codes[i], ats[i], texts_of[i], attempts[i] = move_timer(key, records[i], states[i], deadline_of(ARGV[2 * i + 4]))
end
local function write_scores(zset, members)
  if #members == 0 then return end
  announce_if_earliest(zset, earliest[zset])
  redis.call('ZADD', zset, unpack(members))
end

write_scores(due, due_scores)
write_scores(quarantine, quarantine_scores)
if #new_states > 0 then redis.call('HSET', timer_states, unpack(new_states)) end
if #deleted_states > 0 then redis.call('HDEL', timer_states, unpack(deleted_states)) end
if #new_records > 0 then redis.call('HSET', timers, unpack(new_records)) end
for i, key in ipairs(keys) do
  local marker = NONE
  if with_markers and attempts[i] then marker = set_marker(key, texts_of[i], attempts[i], true) end
  out[i] = codes[i] .. marker .. struct.pack('>I8', ats[i])
end
publish_wake_ups()
return table.concat(out) .. error_suffix(refused)
