-- dead_letters.lua: how a timer becomes a dead letter, or waits again.
--
-- Purpose: move a record and its state into the dead letters, keep these
--   within their bounds, and let the arming kept behind the timer follow; or
--   hand a claimed timer back.
-- KEYS 8 dead, 9 dead_letters
-- Invariants: the body sets dead_cap, dead_age (ms) and dead_full ('trim' or
--   'pause') before it buries anything.

local dead, dead_letters = KEYS[8], KEYS[9]
local dead_cap, dead_age, dead_full

-- How many letters were trimmed, for the caller to be loud about, and written.
local trimmed, buried = 0, 0

local function remove_oldest(members)
  if #members == 0 then return end
  redis.call('ZREM', dead, unpack(members))
  redis.call('HDEL', dead_letters, unpack(members))
  redis.call('HINCRBY', KEYS[1], 'trimmed', #members)
  redis.call('HSET', KEYS[1], 'trimmed_at', now)
  trimmed = trimmed + #members
end

local function trim_dead_letters()
  local excess = redis.call('ZCARD', dead) - dead_cap
  if dead_full == 'pause' then
    -- Whoever has paused it already had a reason, too.
    if excess >= 0 then redis.call('HSETNX', KEYS[1], 'paused', 'dead letters are full') end
  elseif excess > 0 then
    remove_oldest(redis.call('ZRANGE', dead, 0, math.min(excess, 1000) - 1))
  end
  remove_oldest(redis.call('ZRANGE', dead, '-inf', '(' .. string.format('%.0f', now - dead_age), 'BYSCORE', 'LIMIT', 0, 100))
end

-- A letter: version, reason, time of death, length of the state, state, record. Its name: arming id, time
-- of death, key. An arming that is brought back, or armed again by a late repeat, may die more than once.
local function add_dead_letter(key, record, state, reason)
  local id = #record >= 9 and sub(record, 2, 9) or NO_TOKEN
  local member = id .. struct.pack('>I8', now) .. key
  redis.call('HSET', dead_letters, member, struct.pack('>BBI8I4', 1, reason, now, #state) .. state .. record)
  redis.call('ZADD', dead, now, member)
  buried = buried + 1
  if WATCHED then log_end(char(reason), key, record, state, 0) end
end

-- lost: the leases that what follows inherits. What an attempt armed for its own key, and took its listener
-- down, would do so again, and arm the next: it dies with it.
local function move_to_dead_letters(key, record, state, reason, lost)
  add_dead_letter(key, record, state, reason)
  local kept = lost > 0 and redis.call('HGET', queued, key)
  if kept and byte(kept) == OWN then
    add_dead_letter(key, sub(kept, 2), fresh_state(0), 105) -- 'i', inherited
    add_tombstone('a' .. sub(kept, 3, 10))
    redis.call('HDEL', queued, key)
  end
  remove(key)
  trim_dead_letters()
  return promote_queued(key, lost, record)
end

-- Puts a claimed timer back into its index, at its deadline, for anybody to claim. It uses up no attempt, and is no
-- lost lease. Returns the deadline.
local function release_timer(key, record, state)
  local lost = byte(state, 15)
  local at = present_deadline(record, state)
  -- One that was cut short meanwhile is due now, and buried by its claim.
  if at == 0 then at = now end
  index_timer(lost >= QUARANTINE_AT and quarantine or due, at, key)
  if is_tried(state) then move_tried(key, at) end
  redis.call('HSET', timer_states, key, '\1\0' .. NO_TOKEN .. sub(state, 11))
  return at
end
