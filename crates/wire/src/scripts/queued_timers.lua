-- queued_timers.lua: Promote the arming that is queued behind a timer, and write tombstones.
--
-- Purpose: An arming of a key whose timer is claimed is queued behind that timer. It stays queued if that timer waits
--   again after a snooze, a release or a lost lease. When the timer has ended, this part makes the queued arming the waiting
--   timer of the key (queued -> waiting), and keeps the ID of the ended arming as a tombstone for ten minutes.
-- KEYS 2 due, 3 quarantine, 4 timers, 5 timer_states, 6 queued, 7 tombstones

local due, quarantine, timers, timer_states, queued, tombstones = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]

local MAX_TOMBSTONE_AGE, MAX_TOMBSTONES = 600000, 100000

-- Deletes up to `most` tombstones that are too old. Returns how many it deleted.
local function remove_old_tombstones(most)
  local old = redis.call('ZRANGE', tombstones, '-inf', now - MAX_TOMBSTONE_AGE, 'BYSCORE', 'LIMIT', '0', most)
  if #old > 0 then redis.call('ZREM', tombstones, unpack(old)) end
  return #old
end

-- Adds tombstones: a score (the time in ms) and a member in turns. A member is a letter and an ID: 'a' of an arming that was
-- cancelled, replaced or followed by another, 'r' of an arming that has replaced a timer, 'c' of a cancel, 'p' of a replay.
-- Each call deletes a few old tombstones, so that no call has to delete many. The slow repair deletes the rest.
local function add_tombstones(scores_and_members)
  redis.call('ZADD', tombstones, unpack(scores_and_members))
  remove_old_tombstones(math.min(2 * #scores_and_members, 1000))
  redis.call('ZREMRANGEBYRANK', tombstones, '0', -MAX_TOMBSTONES - 1)
end

local function add_tombstone(member)
  add_tombstones({ now, member })
end

-- Deletes a timer from all names except `queued`. The state, which has the token, is deleted last: if an earlier command is
-- refused, a repeat still finds the timer claimed and finishes the rest.
local function remove_timer(key)
  redis.call('ZREM', due, key)
  redis.call('ZREM', quarantine, key)
  remove_tried(key)
  redis.call('HDEL', timers, key)
  redis.call('HDEL', timer_states, key)
end

-- A value in `queued` is a record, or OWN and a record that the timer's own attempt has armed. Behind a lapse of an attached
-- topic it is CYCLES, the number of expiry cycles that have ended since (4 bytes), and the record of the latest. Only the
-- latest record and its value are kept. Returns the number of cycles, 0 for a single arming, and the record.
local CYCLES, OWN = 76, 79 -- 'L', 'O'
local function queued_record(queued_value)
  if byte(queued_value) == CYCLES then return (struct.unpack('>I4', queued_value, 2)), sub(queued_value, 6) end
  return 0, byte(queued_value) == OWN and sub(queued_value, 2) or queued_value
end

-- Returns the record to promote next, and the value that stays in `queued`, if any. Each cycle needs an ID of its own: the
-- last four bytes are those of the record's ID xor the number of cycles that stay.
local function next_cycle(queued_value)
  local count, record = queued_record(queued_value)
  if count < 2 then return record end
  local id_end = bit.bxor(struct.unpack('>I4', record, 6), count - 1)
  if id_end < 0 then id_end = id_end + 4294967296 end
  return sub(record, 1, 5) .. struct.pack('>I4', id_end) .. sub(record, 10),
    'L' .. struct.pack('>I4', count - 1) .. record
end

-- Makes an arming the waiting timer of its key. It inherits lost leases until a live listener settles an attempt: otherwise
-- a poison pill that arms its own key would never be detected. Without lost leases, the caller must delete an old state.
local function install_timer(key, record, at, lost)
  index_timer(lost >= QUARANTINE_AT and quarantine or due, at, key)
  redis.call('HSET', timers, key, record)
  if lost > 0 then
    add_tried(key, record, at)
    redis.call('HSET', timer_states, key, fresh_state(lost))
  end
end

-- Promotes the arming that is queued behind a timer. The caller has already deleted that timer from the other names.
-- ended: the record of the deleted timer, or ''.
-- Returns the new deadline and arming ID, or nil if nothing is queued.
local function promote_queued(key, lost, ended)
  local queued_value = redis.call('HGET', queued, key)
  if not queued_value then return end
  local record, others = next_cycle(queued_value)
  local at = #record >= 17 and struct.unpack('>I8', record, 10) or now
  -- With lost leases, the score is at least now: the timer goes behind the others that are due.
  install_timer(key, record, lost > 0 and math.max(at, now) or at, lost)
  if others then redis.call('HSET', queued, key, others) else redis.call('HDEL', queued, key) end
  if #ended >= 9 then add_tombstone('a' .. sub(ended, 2, 9)) end
  return at, sub(record, 2, 9)
end

-- Ends a timer, and promotes the arming that is queued behind it, if any. Returns as promote_queued does.
-- record: the record of the timer, if the caller has read it.
local function replace_with_queued(key, record)
  record = record or redis.call('HGET', timers, key) or ''
  remove_timer(key)
  return promote_queued(key, 0, record)
end
