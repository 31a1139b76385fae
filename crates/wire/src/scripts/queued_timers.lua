-- queued_timers.lua: what may follow the end of a timer.
--
-- Purpose: put the arming that was kept for later in the place of a timer that
--   has ended, and remember the ids of armings that were withdrawn or followed.
-- KEYS 2 due, 3 quarantine, 4 timers, 5 timer_states, 6 queued, 7 tombstones

local due, quarantine, timers, timer_states, queued, tombstones = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]

local TOMB_AGE, TOMB_COUNT = 600000, 100000

-- Forgets so many of those past their age; how many there were.
local function remove_old_tombstones(most)
  local old = redis.call('ZRANGE', tombstones, '-inf', now - TOMB_AGE, 'BYSCORE', 'LIMIT', '0', most)
  if #old > 0 then redis.call('ZREM', tombstones, unpack(old)) end
  return #old
end

-- Remembers ids of what has ended: the time and a member in turns, which is a letter that says what ended, and
-- the id. A few old ones go with them, so that nobody waits for all; the slow repair takes the rest.
local function add_tombstones(ended)
  redis.call('ZADD', tombstones, unpack(ended))
  remove_old_tombstones(math.min(2 * #ended, 1000))
  redis.call('ZREMRANGEBYRANK', tombstones, '0', -TOMB_COUNT - 1)
end

local function add_tombstone(member)
  add_tombstones({ now, member })
end

-- Takes a timer out of the partition. The state, and with it the token, goes
-- last: should an earlier command be refused, a repeat finds the timer held and
-- finishes the rest.
local function remove(key)
  redis.call('ZREM', due, key)
  redis.call('ZREM', quarantine, key)
  remove_tried(key)
  redis.call('HDEL', timers, key)
  redis.call('HDEL', timer_states, key)
end

-- What waits behind a timer is a record; or one that the timer's own attempt has armed, behind a letter. Behind a
-- lapse of an attached topic it is the expiry cycles of its key that have ended since: a letter, how many, the
-- record of the latest, whose value is kept.
local CYCLES, OWN = 76, 79 -- 'L', 'O'
local function queued_record(kept)
  if byte(kept) == CYCLES then return (struct.unpack('>I4', kept, 2)), sub(kept, 6) end
  return 0, byte(kept) == OWN and sub(kept, 2) or kept
end

-- The next of them, under an id of its own, and what is left.
local function next_cycle(kept)
  local count, record = queued_record(kept)
  if count < 2 then return record end
  local mark = bit.bxor(struct.unpack('>I4', record, 6), count - 1)
  if mark < 0 then mark = mark + 4294967296 end
  return sub(record, 1, 5) .. struct.pack('>I4', mark) .. sub(record, 10),
    'L' .. struct.pack('>I4', count - 1) .. record
end

-- Makes an arming the key's timer. Lost leases are inherited until a live holder
-- settles, or a poison pill that arms its own key would never be caught. Where
-- there are none, it is for the caller to remove a state that is left.
local function install(key, record, at, lost)
  index_timer(lost >= QUARANTINE_AT and quarantine or due, at, key)
  redis.call('HSET', timers, key, record)
  if lost > 0 then
    add_tried(key, record, at)
    redis.call('HSET', timer_states, key, fresh_state(lost))
  end
end

-- Installs the arming kept behind a timer that is gone from rec, run and the indexes.
-- ended: the record of the timer that is gone, or ''
-- Returns the new deadline and arming id, or nil.
local function promote_queued(key, lost, ended)
  local kept = redis.call('HGET', queued, key)
  if not kept then return end
  local record, others = next_cycle(kept)
  local at = #record >= 17 and struct.unpack('>I8', record, 10) or now
  -- Where leases were lost it is the last of those that wait.
  install(key, record, lost > 0 and math.max(at, now) or at, lost)
  if others then redis.call('HSET', queued, key, others) else redis.call('HDEL', queued, key) end
  if #ended >= 9 then add_tombstone('a' .. sub(ended, 2, 9)) end
  return at, sub(record, 2, 9)
end

-- Ends a timer in favour of what is kept behind it, if anything is.
-- record: its own, for those who have read it
local function replace_with_queued(key, record)
  record = record or redis.call('HGET', timers, key) or ''
  remove(key)
  return promote_queued(key, 0, record)
end
