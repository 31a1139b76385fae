-- claim.lua: take what is due, for the time of a lease.
--
-- Purpose: the one judge of who runs what.
-- Parts: prelude, timers, tail_journal, queued_timers, dead_letters
-- Flags: allow-oom
-- KEYS 1 meta, 2 due, 3 quarantine, 4 timers, 5 timer_states, 6 queued, 7 tombstones, 8 dead, 9 dead_letters,
--   10 claimers, 11 tried
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 'due' or 'quarantine', 5 slot, 6 token (8 bytes), 7 '1' for a repeat of an
--   unanswered call, else '0', 8 how many at most (1,000), 9 how many bytes of
--   keys, records and states (the one that reaches it is the last), 10 lookahead
--   in ms (negative: only what has been due for so long), 11 lease in ms,
--   12 dead letters kept, 13 their age in ms, 14 'trim' or 'pause' when full,
--   15 how many of the quarantine run beside what this takes from there, then how many
--   may run together where one has lost two leases, three, or four (0 and 1 where that
--   is not said)
-- Returns: secs, micros, head of due, head of quarantine (scores, or ''), why the
--   topic is paused (or ''), keys, records, states (nil: a first attempt),
--   members without a record, records parked, timers buried, letters trimmed,
--   where this claim is empty and another slot, which stands, made the last that was not:
--   when that was, in ms, else '', and with a negative lookahead 1 if a third slot is the
--   standby, else 0
-- Invariants: a key is claimed only at or after its deadline less the
--   lookahead; a live lease is never taken, not even within the lookahead; the
--   claim's slot names it before anything else is written, so that a repeat
--   finds it. A repeat may ask for fewer bytes: what they have no room for is
--   handed back.

local claimers = KEYS[10]
local quarantined, slot, token, repeated = ARGV[4] == 'quarantine', ARGV[5], ARGV[6], ARGV[7] == '1'
local limit, room = tonumber(ARGV[8]), tonumber(ARGV[9])
local lookahead, lease = tonumber(ARGV[10]), tonumber(ARGV[11])
dead_cap, dead_age, dead_full = tonumber(ARGV[12]), tonumber(ARGV[13]), ARGV[14]
local index = quarantined and quarantine or due
-- As text: a number would be written out anew for each timer.
local expires = string.format('%.0f', now + lease)
local FIRST = '\1\1' .. token .. '\0\0\0\1\0\0\0' .. NO_TOKEN
local PARK = 60000
-- Who was not here for so long is the standby no longer; and who is, says so again after so long.
local STANDBY_FOR, STANDBY_SAID = 5000, 1000
local orphans, parked, held, retries = 0, 0, 0, false

-- When another took something last: a slot that is closed is nobody's. And whether another
-- is the standby: of those who take only what was left lying one is, and the others, who are
-- told so, may come rarely.
local function others()
  local by = redis.call('HGET', claimers, 'last_claimer')
  local last = by and by ~= slot and redis.call('HGET', claimers, by)
  if not last or #last < 16 then return '', 0 end
  local taken = struct.unpack('>I8', last, 9)
  if lookahead >= 0 then return taken, 0 end
  local said = redis.call('HGET', claimers, 'standby') or ''
  -- Also if the clock was set back since.
  local standby, since = sub(said, 9), #said > 8 and math.abs(now - struct.unpack('>I8', said)) or STANDBY_FOR
  if standby ~= slot and standby ~= by and since < STANDBY_FOR then return taken, 1 end
  if standby ~= slot or since >= STANDBY_SAID then
    redis.call('HSET', claimers, 'standby', struct.pack('>I8', now) .. slot)
  end
  return taken, 0
end

local function reply(keys, records, states)
  local taken, standby = '', 0
  if #keys == 0 then taken, standby = others() end
  return {
    secs, micros, head_of(due) or '', head_of(quarantine) or '', meta[3] or '',
    keys, records, states, orphans, parked, buried, trimmed,
    taken, standby,
  }
end

-- What the slot's last claim still holds, with its leases renewed; not cut short,
-- where they have been renewed for longer since. An answer may have been lost for its
-- size: what there is no room for now is handed back, and this token holds it no more.
local function repeat_claim()
  local last = redis.call('HGET', claimers, slot)
  if not last or sub(last, 1, 8) ~= token then return end
  local keys, records, states = {}, {}, {}
  for _, key in ipairs(cmsgpack.unpack(sub(last, 17))) do
    local state = redis.call('HGET', timer_states, key)
    local record = redis.call('HGET', timers, key)
    if state and record and sub(state, 3, 10) == token and byte(state, 2) == 1 then
      if room > 0 or #state < 25 then
        redis.call('ZADD', (byte(state, 15) or 0) >= QUARANTINE_AT and quarantine or due, 'GT', expires, key)
        if is_tried(state) then redis.call('ZADD', tried, 'XX', 'GT', expires, '>' .. key) end
        local n = #keys + 1
        keys[n], records[n], states[n] = key, record, state ~= FIRST and state
        room = room - #key - #record - (state == FIRST and 0 or #state)
      else
        local at = release_timer(key, record, state)
        if WATCHED then log_next('H', key, record, sub(state, 11, 14), at) end
      end
    end
  end
  local answer = reply(keys, records, states)
  publish_wake_ups()
  if WATCHED then flush_log() end
  return answer
end

-- Anything but a plain first attempt. Returns the state to claim with, or nil.
local function prepare_claim(key, record, state)
  if not record then
    redis.call('ZREM', index, key)
    redis.call('HDEL', timer_states, key)
    remove_tried(key)
    orphans = orphans + 1
    return
  end
  if byte(record) and byte(record) > 1 and not known(record) or state and byte(state) and byte(state) > 1 then
    redis.call('ZADD', index, now + PARK, key)
    move_tried(key, now + PARK)
    parked = parked + 1
    return
  end
  if #record < 17 or byte(record) < 1 or state and (#state < 25 or byte(state) < 1) then
    move_to_dead_letters(key, record, state or '', 117, 0) -- 'u', unreadable
    return
  end
  local lost = state and byte(state, 15) or 0
  if quarantined and lost < QUARANTINE_AT then
    -- Its state was lost, and with it the lost leases: it is one of the others.
    redis.call('ZADD', due, 'NX', now, key)
    redis.call('ZREM', quarantine, key)
    remove_tried(key)
    return
  end
  if byte(state, 2) == 1 then
    if tonumber(redis.call('ZSCORE', index, key)) >= now + 1 then return end
    lost = math.min(lost + 1, 255)
    if lost >= DEAD_AT then
      move_to_dead_letters(key, record, sub(state, 1, 14) .. char(lost) .. sub(state, 16), 108, DEAD_AT - 1) -- 'l', lost leases
      return
    end
  end
  if lost >= QUARANTINE_AT and not quarantined then
    redis.call('ZADD', quarantine, now, key)
    redis.call('ZREM', due, key)
    add_tried(key, record, now)
    redis.call('HSET', timer_states, key, '\1\0' .. sub(state, 3, 14) .. char(lost) .. sub(state, 16))
    return
  end
  if quarantined then
    -- A group is as small as its worst member needs it. Who does not fit is waited for.
    limit = math.min(limit, (tonumber(ARGV[14 + math.min(lost, 4)]) or 1) - (ARGV[15] or 0))
    if held >= limit then room = 0 end
    if room == 0 then return end
  end
  retries = true
  return '\1\1' .. token .. sub(state, 11, 14) .. char(lost) .. sub(state, 16)
end

-- What was claimed before a pause is held all the same.
if repeated then
  local again = repeat_claim()
  if again then return again end
end
if meta[3] then return { secs, micros, '', '', meta[3], {}, {}, {}, 0, 0, 0, 0, '', 0 } end

local ready = redis.call('ZRANGE', index, '-inf', '(' .. string.format('%.0f', now + 1 + lookahead), 'BYSCORE', 'LIMIT', 0, limit)
local keys, records, states, leases, holds = {}, {}, {}, {}, {}
local from, width, read, size = 1, 0, 0, 0
-- Nothing is given out whose end could not be written down: here a value of
-- another type is an error before anything is written.
if #ready > 0 then
  for _, zset in ipairs({ due, quarantine, tombstones, dead, tried }) do redis.call('ZCARD', zset) end
  redis.call('HLEN', queued)
  redis.call('HLEN', dead_letters)
end
-- In slices, so that the bound on bytes bounds what is read, too: a small one
-- first, as far as its sizes allow, then wider ones, as the records so far suggest.
while width < math.min(8, #ready) and size < room do
  width = width + 1
  size = size + redis.call('HSTRLEN', timers, ready[width])
end
while from <= #ready and room > 0 do
  local to = math.min(from + width - 1, #ready)
  local slice_records = redis.call('HMGET', timers, unpack(ready, from, to))
  local slice_states = redis.call('HMGET', timer_states, unpack(ready, from, to))
  for i = 1, to - from + 1 do
    if room <= 0 then break end
    local key, record, state = ready[from + i - 1], slice_records[i], slice_states[i]
    read = read + (record and #record or 0)
    local hold = FIRST
    local plain = record and not state and not quarantined and (byte(record) == 1 or known(record)) and #record >= 17
    if not plain then hold = prepare_claim(key, record, state) end
    if hold then
      held = held + 1
      room = room - #key - #record - (plain and 0 or #hold)
      keys[held], records[held] = key, record
      states[held] = not plain and hold
      leases[2 * held - 1], leases[2 * held] = expires, key
      holds[2 * held - 1], holds[2 * held] = key, hold
    end
  end
  from = to + 1
  width = math.max(1, math.min(250, 4 * width, math.floor(room / (read / to + 1))))
end

if held > 0 then
  redis.call('HSET', claimers, slot, token .. struct.pack('>I8', now) .. cmsgpack.pack(keys))
  -- Who takes from the quarantine takes nothing from those who look for what comes due.
  if not quarantined then redis.call('HSET', claimers, 'last_claimer', slot) end
  -- Leases first: a state that says "claimed" beside an old score, which a lack
  -- of rights in between would leave, reads as a lost lease.
  redis.call('ZADD', index, unpack(leases))
  redis.call('HSET', timer_states, unpack(holds))
  for i = 1, retries and held or 0 do
    if states[i] and is_tried(states[i]) then add_tried(keys[i], records[i], expires) end
  end
  if WATCHED then
    for i, key in ipairs(keys) do log_start(key, records[i], states[i] or FIRST) end
  end
end
local answer = reply(keys, records, states)
publish_wake_ups()
if WATCHED then flush_log() end
return answer
