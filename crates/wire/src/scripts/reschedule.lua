-- reschedule.lua: move waiting timers to other deadlines.
--
-- Purpose: keep arming, payload and attempt, change when; at most 1,000 a call, no key twice.
-- Parts: prelude, timers, markers
-- Flags: (none)
-- KEYS 1 meta, 2 due, 3 quarantine, 4 timers, 5 timer_states, 6 tried
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel, 4 '1' to move trigger keys, else '0',
--   then per timer: key; when, as '+ms' from now or ms since 1970
-- Returns: per timer a byte with a code, a byte with what became of the trigger key, the deadline in 8
--   bytes; behind the last, where one of these is to be said, why listeners could not be told, a line
--   break, why trigger keys were refused
--   codes: 0 not armed, 1 rescheduled, 2 in flight (nothing was changed), 3 the deadline is no number,
--   or beyond 2^43 ms (nothing was changed)
--   trigger keys: 0 none, 1 set, 2 the name is taken, 3 refused

local due, quarantine, timers, timer_states = KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local triggered = ARGV[4] == '1'
local keys = {}
for at = 5, #ARGV, 2 do keys[#keys + 1] = ARGV[at] end
local records, states = redis.call('HMGET', timers, unpack(keys)), redis.call('HMGET', timer_states, unpack(keys))

-- What is written, by where it belongs.
local fields, held, cleared, scores, suspects, soonest = {}, {}, {}, {}, {}, { [due] = math.huge, [quarantine] = math.huge }
local function add(list, first, second)
  list[#list + 1] = first
  list[#list + 1] = second
end

local function move(key, record, state, at, text)
  if not record or #record < 17 then return '\0', 0 end
  if state and byte(state, 2) == 1 then return '\2', 0 end
  if not at then return '\3', 0 end
  local had = state
  if not state or #state < 25 then state = fresh_state(0) end
  if known(record) and sub(state, 11, 17) == '\0\0\0\1\0\0\0' then
    -- Nothing has happened to it yet: its age is to count from the new deadline.
    add(fields, key, sub(record, 1, 9) .. struct.pack('>I8', at) .. sub(record, 18))
    if had then
      cleared[#cleared + 1] = key
      if is_tried(had) then remove_tried(key) end
    end
  else
    move_tried(key, at)
    add(held, key, sub(state, 1, 17) .. struct.pack('>I8', at) .. sub(state, 26))
  end
  local index = byte(state, 15) >= QUARANTINE_AT and quarantine or due
  add(index == due and scores or suspects, text, key)
  soonest[index] = math.min(soonest[index], at)
  return '\1', at, text, (struct.unpack('>I4', state, 11))
end

local codes, ats, texts_of, attempts, out = {}, {}, {}, {}, {}
for i, key in ipairs(keys) do
  codes[i], ats[i], texts_of[i], attempts[i] = move(key, records[i], states[i], deadline_of(ARGV[2 * i + 4]))
end
local function put(zset, members)
  if #members == 0 then return end
  announce_if_earliest(zset, soonest[zset])
  redis.call('ZADD', zset, unpack(members))
end

put(due, scores)
put(quarantine, suspects)
if #held > 0 then redis.call('HSET', timer_states, unpack(held)) end
if #cleared > 0 then redis.call('HDEL', timer_states, unpack(cleared)) end
if #fields > 0 then redis.call('HSET', timers, unpack(fields)) end
for i, key in ipairs(keys) do
  local trigger = NONE
  if triggered and attempts[i] then trigger = set_marker(key, texts_of[i], attempts[i], true) end
  out[i] = codes[i] .. trigger .. struct.pack('>I8', ats[i])
end
publish_wake_ups()
return table.concat(out) .. error_suffix(refused)
