-- dead_letters.lua: Move timers to the dead letters, or release claimed timers.
--
-- Purpose: A waiting or claimed timer becomes a dead letter with its record and its last state, and the arming that is
--   queued behind it is promoted (queued -> waiting). The dead letters are kept within their limits. A claimed timer can
--   also be released (claimed -> waiting).
-- KEYS 8 dead, 9 dead_letters
-- Invariants: The body sets dead_cap, dead_age (ms) and dead_full ('trim' or 'pause') before it adds a dead letter.

local dead, dead_letters = KEYS[8], KEYS[9]
local dead_cap, dead_age, dead_full

-- How many dead letters this call has deleted because of the limits of number and age, and how many it has added.
local trimmed, dead_lettered = 0, 0

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
    -- HSETNX: an operator who paused the topic had a reason, which stays.
    if excess >= 0 then redis.call('HSETNX', KEYS[1], 'paused', 'dead letters are full') end
  elseif excess > 0 then
    remove_oldest(redis.call('ZRANGE', dead, 0, math.min(excess, 1000) - 1))
  end
  remove_oldest(redis.call('ZRANGE', dead, '-inf', '(' .. string.format('%.0f', now - dead_age), 'BYSCORE', 'LIMIT', 0, 100))
end

-- The value of a dead letter: version, reason, time of death, length of the state, state, record. Its name: arming ID, time
-- of death, key. The time is in the name, because an arming that is replayed, or armed again by a late repeat, may die
-- again.
local function add_dead_letter(key, record, state, reason)
  local id = #record >= 9 and sub(record, 2, 9) or NO_TOKEN
  local member = id .. struct.pack('>I8', now) .. key
  redis.call('HSET', dead_letters, member, struct.pack('>BBI8I4', 1, reason, now, #state) .. state .. record)
  redis.call('ZADD', dead, now, member)
  dead_lettered = dead_lettered + 1
  if LOGGED then log_timer_end(char(reason), key, record, state, 0) end
end

-- lost: the lost leases that the queued arming inherits. With lost leases, an arming that the attempt queued for its own key
-- becomes a dead letter too. Otherwise it would take its listener down as well, and arm the next one.
local function move_to_dead_letters(key, record, state, reason, lost)
  add_dead_letter(key, record, state, reason)
  local queued_value = lost > 0 and redis.call('HGET', queued, key)
  if queued_value and byte(queued_value) == OWN then
    add_dead_letter(key, sub(queued_value, 2), fresh_state(0), 105) -- 'i', inherited
    add_tombstone('a' .. sub(queued_value, 3, 10))
    redis.call('HDEL', queued, key)
  end
  remove_timer(key)
  trim_dead_letters()
  return promote_queued(key, lost, record)
end

-- Releases a claimed timer: puts it back into its index at its deadline. The release uses up no attempt, and is no lost
-- lease. Returns the deadline.
local function release_timer(key, record, state)
  local lost = byte(state, 15)
  local at = present_deadline(record, state)
  -- A record that was truncated after the claim has no deadline. The next claim makes the timer a dead letter.
  if at == 0 then at = now end
  index_timer(lost >= QUARANTINE_AT and quarantine or due, at, key)
  if is_tried(state) then move_tried(key, at) end
  redis.call('HSET', timer_states, key, '\1\0' .. NO_TOKEN .. sub(state, 11))
  return at
end
