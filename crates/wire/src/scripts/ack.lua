-- ack.lua: the good end of attempts.
--
-- Purpose: remove timers whose attempt is done; at most 1,000 a call.
-- Parts: prelude, timers, tail_journal, markers, queued_timers
-- Flags: allow-oom
-- KEYS 1 meta, 2 due, 3 quarantine, 4 timers, 5 timer_states, 6 queued, 7 tombstones, 8 tried
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 '1' to set trigger keys, else '0', then per timer: key, token
-- Returns: secs, micros, places (from 1) of the tokens that hold nothing any
--   more, then flat: place, deadline, arming id of each arming that followed; of
--   their trigger keys how many were not set as others have the name, why some
--   were refused (or '')
-- Invariants: a timer goes only with the token that holds it; a lease that is
--   over but has not been claimed again still counts.

local due, quarantine, timers, timer_states, queued = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local tried = sub(KEYS[1], 1, -5) .. 'tried'
local count = (#ARGV - 4) / 2
local asked = {}
for i = 1, count do asked[i] = ARGV[3 + 2 * i] end

local states = redis.call('HMGET', timer_states, unpack(asked))
local done, places, gone, retried = {}, {}, {}, {}
for i, key in ipairs(asked) do
  local state = states[i]
  if state and sub(state, 3, 10) == ARGV[4 + 2 * i] then
    done[#done + 1] = key
    places[#places + 1] = i
    if sub(state, 11) ~= UNTRIED then
      if (byte(state, 15) or QUARANTINE_AT) >= QUARANTINE_AT then redis.call('ZREM', quarantine, key) end
      retried[#retried + 1], retried[#retried + 2] = '<' .. key, '>' .. key
    end
  else
    gone[#gone + 1] = i
  end
end

-- The journal names armings, which records do. Of long ones not all are read.
local READ = 2097152
local records
if meta[6] then
  local room = READ
  records = {}
  for i, key in ipairs(done) do
    records[i] = room > 0 and redis.call('HGET', timers, key) or ''
    room = room - #records[i]
  end
end

local ended = {}
if #done > 0 then
  -- What was kept for later follows; mostly there is nothing.
  if redis.call('EXISTS', queued) == 1 then
    for i, key in ipairs(done) do
      ended[i] = redis.call('HEXISTS', queued, key) == 1 and (redis.call('HGET', timers, key) or '')
    end
  end
  -- The token goes last: should one of these fail, a repeat finishes the rest.
  redis.call('HDEL', timers, unpack(done))
  redis.call('ZREM', due, unpack(done))
  if #retried > 0 then redis.call('ZREM', tried, unpack(retried)) end
  redis.call('HDEL', timer_states, unpack(done))
end
local told = meta[5] and (tonumber(meta[5]) or 0) > now
if #ended == 0 and not told and not meta[6] then return { secs, micros, gone, {}, 0, '' } end

-- Here stand the parts.

local followed, taken = {}, 0
for i, key in ipairs(done) do
  local at, id
  if ended[i] then at, id = promote_queued(key, 0, ended[i]) end
  if at then
    local n = #followed
    followed[n + 1], followed[n + 2], followed[n + 3] = places[i], at, id
    if ARGV[4] == '1' and set_marker(key, string.format('%.0f', at), 1, false) == TAKEN then taken = taken + 1 end
  end
  if WATCHED then log_end('D', key, records and records[i] or ended[i] or '', states[places[i]], at or 0) end
end
publish_wake_ups()
if WATCHED then flush_log() end
return { secs, micros, gone, followed, taken, refused }
