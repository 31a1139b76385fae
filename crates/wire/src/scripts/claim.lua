-- claim.lua: Claim due timers for the time of a lease.
--
-- Purpose: This script alone decides which listener runs a timer. It stores the token of the claim in the states of due
--   timers, and sets their scores to the end of the lease (waiting -> claimed). A claimed timer whose lease has ended is
--   claimed again with one more lost lease. A timer with two lost leases moves to quarantine (claimed -> waiting). A timer
--   with five, or with an unreadable record or state, becomes a dead letter. A timer is parked for a minute if a newer
--   release has written its record or state.
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
--   states (nil: a first attempt); how many members without a record were removed, how many timers were parked, how many
--   became dead letters, how many dead letters were trimmed; if this claim is empty, and another
--   claimer that has not ended has made the last claim of `due` with timers: when, in ms, else ''; and with a negative
--   lookahead 1 if a third claimer is the standby, else 0
-- Invariants: A key is claimed only at or after its deadline less the lookahead. A live lease is never taken, not even
--   within the lookahead. The claimer's entry names the claimed keys before their leases are written, so that a repeat finds
--   them. A repeat may ask for fewer bytes: timers beyond them are released.

local claimers = KEYS[10]
local quarantined, claimer, token, repeated = ARGV[4] == 'quarantine', ARGV[5], ARGV[6], ARGV[7] == '1'
local limit, room = tonumber(ARGV[8]), tonumber(ARGV[9])
local lookahead, lease = tonumber(ARGV[10]), tonumber(ARGV[11])
dead_cap, dead_age, dead_full = tonumber(ARGV[12]), tonumber(ARGV[13]), ARGV[14]
local index = quarantined and quarantine or due
-- As text, because Lua would format a number again for each timer.
local expires = string.format('%.0f', now + lease)
local FIRST = '\1\1' .. token .. '\0\0\0\1\0\0\0' .. NO_TOKEN
local PARKED_FOR = 60000
-- A claimer that has not claimed for STANDBY_FOR ms is no longer the standby. The standby renews its entry after
-- STANDBY_RENEWED_AFTER ms.
local STANDBY_FOR, STANDBY_RENEWED_AFTER = 5000, 1000
local orphans, parked, claimed, has_states = 0, 0, 0, false

-- Returns when another claimer last claimed timers, or '', and 1 if a third claimer is the standby. A claimer that has ended
-- has no entry, and does not count. A caller with a negative lookahead is a follower, which claims only timers that the
-- last claimer has left. The caller becomes the standby if no other follower is. Otherwise it gets 1, and may claim rarely.
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
        if LOGGED then log_attempt_end('H', key, record, sub(state, 11, 14), at) end
      end
    end
  end
  local answer = reply(keys, records, states)
  publish_wake_ups()
  if LOGGED then flush_log() end
  return answer
end

-- Returns the state with which a timer is claimed. Returns nil if it is not claimed: it was removed, parked or moved, its
-- lease has not ended, or the group has no room. Plain first attempts need no such call.
local function prepare_claim(key, record, state)
  if not record then
    redis.call('ZREM', index, key)
    redis.call('HDEL', timer_states, key)
    remove_tried(key)
    orphans = orphans + 1
    return
  end
  if byte(record) and byte(record) > 1 and not is_readable(record) or state and byte(state) and byte(state) > 1 then
    redis.call('ZADD', index, now + PARKED_FOR, key)
    move_tried(key, now + PARKED_FOR)
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
    if claimed >= limit then room = 0 end
    if room == 0 then return end
  end
  has_states = true
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
local from, slice_size, bytes_read, slice_bytes = 1, 0, 0, 0
-- A claimed timer must be able to end. If one of these names holds another type, the call fails here, before it writes.
if #ready > 0 then
  for _, zset in ipairs({ due, quarantine, tombstones, dead, tried }) do redis.call('ZCARD', zset) end
  redis.call('HLEN', queued)
  redis.call('HLEN', dead_letters)
end
-- Records are read in slices, so that the limit of bytes limits the reads too. The first slice has up to eight timers, as
-- far as their sizes fit. Each further slice has up to four times as many, as the average size so far suggests.
while slice_size < math.min(8, #ready) and slice_bytes < room do
  slice_size = slice_size + 1
  slice_bytes = slice_bytes + redis.call('HSTRLEN', timers, ready[slice_size])
end
while from <= #ready and room > 0 do
  local to = math.min(from + slice_size - 1, #ready)
  local slice_records = redis.call('HMGET', timers, unpack(ready, from, to))
  local slice_states = redis.call('HMGET', timer_states, unpack(ready, from, to))
  for i = 1, to - from + 1 do
    if room <= 0 then break end
    local key, record, state = ready[from + i - 1], slice_records[i], slice_states[i]
    bytes_read = bytes_read + (record and #record or 0)
    local claimed_state = FIRST
    local plain = record and not state and not quarantined and (byte(record) == 1 or is_readable(record)) and #record >= 17
    if not plain then claimed_state = prepare_claim(key, record, state) end
    if claimed_state then
      claimed = claimed + 1
      room = room - #key - #record - (plain and 0 or #claimed_state)
      keys[claimed], records[claimed] = key, record
      states[claimed] = not plain and claimed_state
      leases[2 * claimed - 1], leases[2 * claimed] = expires, key
      new_states[2 * claimed - 1], new_states[2 * claimed] = key, claimed_state
    end
  end
  from = to + 1
  slice_size = math.max(1, math.min(250, 4 * slice_size, math.floor(room / (bytes_read / to + 1))))
end

if claimed > 0 then
  redis.call('HSET', claimers, claimer, token .. struct.pack('>I8', now) .. cmsgpack.pack(keys))
  -- A claim of the quarantine does not make its claimer the leader for `due`.
  if not quarantined then redis.call('HSET', claimers, 'last_claimer', claimer) end
  -- The leases are written before the states: a claimed state with the old score, as a failure between the two would leave
  -- it, reads as a lost lease.
  redis.call('ZADD', index, unpack(leases))
  redis.call('HSET', timer_states, unpack(new_states))
  for i = 1, has_states and claimed or 0 do
    if states[i] and is_tried(states[i]) then add_tried(keys[i], records[i], expires) end
  end
  if LOGGED then
    for i, key in ipairs(keys) do log_attempt_start(key, records[i], states[i] or FIRST) end
  end
end
local answer = reply(keys, records, states)
publish_wake_ups()
if LOGGED then flush_log() end
return answer
