-- claim.lua: Claim due timers for the time of a lease.
--
-- Purpose: This script alone decides which listener runs a timer. It stores the token of the claim in the states of due
--   timers, and sets their scores to the end of the lease (waiting -> claimed). A claimed timer whose lease has ended is
--   claimed again with one more lost lease. A timer with two lost leases moves to quarantine. A timer with five, or with an
--   unreadable record or state, becomes a dead letter.
-- Parts: prelude, timers, tail_journal, queued_timers, dead_letters
-- Flags: allow-oom
-- KEYS 1 meta, 2 due, 3 quarantine, 4 timers, 5 timer_states, 6 queued, 7 tombstones, 8 dead, 9 dead_letters, 10 claimers,
--   11 tried
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 'due' or 'quarantine', 5 ID of the claimer, 6 token (8 bytes), 7 '1' for a repeat of an unanswered call, else '0',
--   8 how many at most (1,000), 9 how many bytes of keys, records and states (the timer that reaches this is the last),
--   10 lookahead in ms (negative: only timers that have been due for so long), 11 lease in ms, 12 dead letters kept,
--   13 their age in ms, 14 'trim' or 'pause' when full, 15 how many timers of the quarantine this listener runs already,
--   then how many may run together if one of them has lost two leases, three, or four (0 and 1 if not given)
-- Returns: secs, micros, head of due, head of quarantine (scores, or ''), why the topic is paused (or ''), keys, records,
--   states (nil: a first attempt), members without a record, records parked, timers that became dead letters, dead letters
--   trimmed; if this claim is empty and another claimer, which has not ended, made the last that was not: when, in ms, else
--   ''; and with a negative lookahead 1 if a third claimer is the standby, else 0
-- Invariants: A key is claimed only at or after its deadline less the lookahead. A live lease is never taken, not even
--   within the lookahead. The claimer's entry names the claim before anything else is written, so that a repeat finds it. A
--   repeat may ask for fewer bytes: timers beyond them are released.

local claimers = KEYS[10]
local quarantined, claimer, token, repeated = ARGV[4] == 'quarantine', ARGV[5], ARGV[6], ARGV[7] == '1'
local limit, room = tonumber(ARGV[8]), tonumber(ARGV[9])
local lookahead, lease = tonumber(ARGV[10]), tonumber(ARGV[11])
dead_cap, dead_age, dead_full = tonumber(ARGV[12]), tonumber(ARGV[13]), ARGV[14]
local index = quarantined and quarantine or due
-- As text, because Lua would format a number again for each timer.
local expires = string.format('%.0f', now + lease)
local FIRST = '\1\1' .. token .. '\0\0\0\1\0\0\0' .. NO_TOKEN
local PARK = 60000
-- A claimer that has not claimed for STANDBY_FOR ms is no longer the standby. The standby renews its entry after
-- STANDBY_RENEWED_AFTER ms.
local STANDBY_FOR, STANDBY_RENEWED_AFTER = 5000, 1000
local orphans, parked, held, retries = 0, 0, 0, false

-- Returns when another claimer last took timers, or '', and 1 if a third one is the standby. A claimer that has ended has no
-- entry, and does not count. With a negative lookahead the caller is a follower, which takes only timers that were left. One
-- follower is the standby; the others get 1 and may claim rarely.
local function last_other_claim()
  local last_claimer = redis.call('HGET', claimers, 'last_claimer')
  local last_claim = last_claimer and last_claimer ~= claimer and redis.call('HGET', claimers, last_claimer)
  if not last_claim or #last_claim < 16 then return '', 0 end
  local claimed_at = struct.unpack('>I8', last_claim, 9)
  if lookahead >= 0 then return claimed_at, 0 end
  local standby_entry = redis.call('HGET', claimers, 'standby') or ''
  local standby = sub(standby_entry, 9)
  -- math.abs: the entry is also old if the clock was set back since.
  local since = #standby_entry > 8 and math.abs(now - struct.unpack('>I8', standby_entry)) or STANDBY_FOR
  if standby ~= claimer and standby ~= last_claimer and since < STANDBY_FOR then return claimed_at, 1 end
  if standby ~= claimer or since >= STANDBY_RENEWED_AFTER then
    redis.call('HSET', claimers, 'standby', struct.pack('>I8', now) .. claimer)
  end
  return claimed_at, 0
end

local function reply(keys, records, states)
  local claimed_at, standby = '', 0
  if #keys == 0 then claimed_at, standby = last_other_claim() end
  return {
    secs, micros, head_of(due) or '', head_of(quarantine) or '', meta[3] or '',
    keys, records, states, orphans, parked, dead_lettered, trimmed,
    claimed_at, standby,
  }
end

-- Answers a repeat with the timers that the claimer's last claim still holds. Renews their leases, but never shortens them
-- (GT). The first answer may have been lost because of its size: timers beyond the limit of bytes are released, and this
-- token holds them no longer.
local function repeat_claim()
  local last_claim = redis.call('HGET', claimers, claimer)
  if not last_claim or sub(last_claim, 1, 8) ~= token then return end
  local keys, records, states = {}, {}, {}
  for _, key in ipairs(cmsgpack.unpack(sub(last_claim, 17))) do
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

-- Handles all timers but plain first attempts. Returns the state to claim the timer with, or nil if it is not claimed.
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
    -- The state was lost, and with it the count of lost leases: the timer moves back to `due`.
    redis.call('ZADD', due, 'NX', now, key)
    redis.call('ZREM', quarantine, key)
    remove_tried(key)
    return
  end
  if byte(state, 2) == 1 then
    if tonumber(redis.call('ZSCORE', index, key)) >= now + 1 then return end
    lost = math.min(lost + 1, 255)
    if lost >= DEAD_AT then
      state = sub(state, 1, 14) .. char(lost) .. sub(state, 16)
      move_to_dead_letters(key, record, state, 108, DEAD_AT - 1) -- 'l', lost leases
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
    -- The member with the most lost leases limits the group. The order of the index is kept: a timer that does not fit ends
    -- the claim.
    limit = math.min(limit, (tonumber(ARGV[14 + math.min(lost, 4)]) or 1) - (ARGV[15] or 0))
    if held >= limit then room = 0 end
    if room == 0 then return end
  end
  retries = true
  return '\1\1' .. token .. sub(state, 11, 14) .. char(lost) .. sub(state, 16)
end

-- A repeat is answered although the partition was paused since, because its timers are claimed.
if repeated then
  local again = repeat_claim()
  if again then return again end
end
if meta[3] then return { secs, micros, '', '', meta[3], {}, {}, {}, 0, 0, 0, 0, '', 0 } end

local until_score = '(' .. string.format('%.0f', now + 1 + lookahead)
local ready = redis.call('ZRANGE', index, '-inf', until_score, 'BYSCORE', 'LIMIT', 0, limit)
local keys, records, states, leases, new_states = {}, {}, {}, {}, {}
local from, width, read, size = 1, 0, 0, 0
-- A claimed timer must be able to end. If one of these names holds another type, the call fails here, before it writes.
if #ready > 0 then
  for _, zset in ipairs({ due, quarantine, tombstones, dead, tried }) do redis.call('ZCARD', zset) end
  redis.call('HLEN', queued)
  redis.call('HLEN', dead_letters)
end
-- Records are read in slices, so that the limit of bytes limits the reads too. The first slice has up to eight timers, as
-- far as their sizes fit. Each further slice has up to four times as many, as the average size so far suggests.
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
    local claimed_state = FIRST
    local plain = record and not state and not quarantined and (byte(record) == 1 or known(record)) and #record >= 17
    if not plain then claimed_state = prepare_claim(key, record, state) end
    if claimed_state then
      held = held + 1
      room = room - #key - #record - (plain and 0 or #claimed_state)
      keys[held], records[held] = key, record
      states[held] = not plain and claimed_state
      leases[2 * held - 1], leases[2 * held] = expires, key
      new_states[2 * held - 1], new_states[2 * held] = key, claimed_state
    end
  end
  from = to + 1
  width = math.max(1, math.min(250, 4 * width, math.floor(room / (read / to + 1))))
end

if held > 0 then
  redis.call('HSET', claimers, claimer, token .. struct.pack('>I8', now) .. cmsgpack.pack(keys))
  -- A claim of the quarantine does not make its claimer the leader for `due`.
  if not quarantined then redis.call('HSET', claimers, 'last_claimer', claimer) end
  -- The leases are written before the states: a claimed state with the old score, as a failure between the two would leave
  -- it, reads as a lost lease.
  redis.call('ZADD', index, unpack(leases))
  redis.call('HSET', timer_states, unpack(new_states))
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
