-- ack.lua: End timers whose attempts succeeded.
--
-- Purpose: Deletes claimed timers whose attempts are done. An arming that is queued behind one becomes the waiting timer of
--   the key (queued -> waiting). A call has at most 1,000 timers.
-- Parts: prelude, timers, tail_journal, markers, queued_timers
-- Flags: allow-oom
-- KEYS 1 meta, 2 due, 3 quarantine, 4 timers, 5 timer_states, 6 queued, 7 tombstones, 8 tried
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 '1' to set marker keys, else '0', then per timer: key, token
-- Returns: secs, micros, a list of the numbers in the call (from 1) of tokens that hold nothing any more, a list of number,
--   deadline and arming ID in turns for each arming that was promoted, how many of their marker keys were not set because
--   another program uses the name, why some were refused (or '')
-- Invariants: A timer is deleted only with the token that holds it. A lease that has ended still counts until the timer is
--   claimed again. A repeat finds that the tokens hold nothing any more.

local due, quarantine, timers, timer_states, queued = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local tried = sub(KEYS[1], 1, -5) .. 'tried'
local count = (#ARGV - 4) / 2
local keys = {}
for i = 1, count do keys[i] = ARGV[3 + 2 * i] end

local states = redis.call('HMGET', timer_states, unpack(keys))
local done, numbers, gone, tried_members = {}, {}, {}, {}
for i, key in ipairs(keys) do
  local state = states[i]
  if state and sub(state, 3, 10) == ARGV[4 + 2 * i] then
    done[#done + 1] = key
    numbers[#numbers + 1] = i
    if sub(state, 11) ~= UNTRIED then
      if (byte(state, 15) or QUARANTINE_AT) >= QUARANTINE_AT then redis.call('ZREM', quarantine, key) end
      tried_members[#tried_members + 1], tried_members[#tried_members + 2] = '<' .. key, '>' .. key
    end
  else
    gone[#gone + 1] = i
  end
end

-- The journal needs arming IDs, which the records have. Records beyond MAX_READ_BYTES are not read.
local MAX_READ_BYTES = 2097152
local records
if meta[6] then
  local room = MAX_READ_BYTES
  records = {}
  for i, key in ipairs(done) do
    records[i] = room > 0 and redis.call('HGET', timers, key) or ''
    room = room - #records[i]
  end
end

local ended = {}
if #done > 0 then
  -- A queued arming is promoted; mostly there is none.
  if redis.call('EXISTS', queued) == 1 then
    for i, key in ipairs(done) do
      ended[i] = redis.call('HEXISTS', queued, key) == 1 and (redis.call('HGET', timers, key) or '')
    end
  end
  -- The state, which has the token, is deleted last: if one of these fails, a repeat finishes the rest.
  redis.call('HDEL', timers, unpack(done))
  redis.call('ZREM', due, unpack(done))
  if #tried_members > 0 then redis.call('ZREM', tried, unpack(tried_members)) end
  redis.call('HDEL', timer_states, unpack(done))
end
local is_watched = meta[5] and (tonumber(meta[5]) or 0) > now
if #ended == 0 and not is_watched and not meta[6] then return { secs, micros, gone, {}, 0, '' } end

-- Parts are inserted here.

local promoted, markers_taken = {}, 0
for i, key in ipairs(done) do
  local at, id
  if ended[i] then at, id = promote_queued(key, 0, ended[i]) end
  if at then
    local n = #promoted
    promoted[n + 1], promoted[n + 2], promoted[n + 3] = numbers[i], at, id
    if ARGV[4] == '1' and set_marker(key, string.format('%.0f', at), 1, false) == TAKEN then
      markers_taken = markers_taken + 1
    end
  end
  if LOGGED then log_timer_end('D', key, records and records[i] or ended[i] or '', states[numbers[i]], at or 0) end
end
publish_wake_ups()
if LOGGED then flush_log() end
return { secs, micros, gone, promoted, markers_taken, refused }
