-- queued_timers.lua: Promote the arming that is queued behind a timer, and write tombstones.
--
-- Purpose: An arming of a key whose timer is claimed is queued behind that timer. When the timer has ended, this part makes
--   the queued arming the waiting timer of the key (queued -> waiting). The ID of the ended arming stays as a tombstone for
--   ten minutes.
-- KEYS 2 due, 3 quarantine, 4 timers, 5 timer_states, 6 queued, 7 tombstones

local due, quarantine, timers, timer_states, queued, tombstones = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]

local TOMB_AGE, TOMB_COUNT = 600000, 100000

-- Deletes up to `most` tombstones that are too old. Returns how many it deleted.
local function remove_old_tombstones(most)
  local old = redis.call('ZRANGE', tombstones, '-inf', now - TOMB_AGE, 'BYSCORE', 'LIMIT', '0', most)
  if #old > 0 then redis.call('ZREM', tombstones, unpack(old)) end
  return #old
end

-- Adds tombstones. `ended` has a score (the time in ms) and a member in turns; a member is a letter for the kind and the ID.
-- Each call deletes a few old tombstones, so that no call has to delete many. The slow repair deletes the rest.
local function add_tombstones(ended)
  redis.call('ZADD', tombstones, unpack(ended))
  remove_old_tombstones(math.min(2 * #ended, 1000))
  redis.call('ZREMRANGEBYRANK', tombstones, '0', -TOMB_COUNT - 1)
end

local function add_tombstone(member)
  add_tombstones({ now, member })
end

-- Deletes a timer from all names except `queued`. The state, which has the token, is deleted last: if an earlier command is
-- refused, a repeat still finds the timer claimed and finishes the rest.
local function remove(key)
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
local function queued_record(kept)
  if byte(kept) == CYCLES then return (struct.unpack('>I4', kept, 2)), sub(kept, 6) end
  return 0, byte(kept) == OWN and sub(kept, 2) or kept
end

-- Returns the record to promote next, with an ID of its own, and the value that stays in `queued`, if any.
local function next_cycle(kept)
  local count, record = queued_record(kept)
  if count < 2 then return record end
  local mark = bit.bxor(struct.unpack('>I4', record, 6), count - 1)
  if mark < 0 then mark = mark + 4294967296 end
  return sub(record, 1, 5) .. struct.pack('>I4', mark) .. sub(record, 10),
    'L' .. struct.pack('>I4', count - 1) .. record
end

-- Makes an arming the waiting timer of its key. It inherits lost leases until a live listener settles an attempt: otherwise
-- a poison pill that arms its own key would never be detected. Without lost leases, the caller must delete an old state.
local function install(key, record, at, lost)
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
  local kept = redis.call('HGET', queued, key)
  if not kept then return end
  local record, others = next_cycle(kept)
  local at = #record >= 17 and struct.unpack('>I8', record, 10) or now
  -- With lost leases, the score is at least now: the timer goes behind the others that are due.
  install(key, record, lost > 0 and math.max(at, now) or at, lost)
  if others then redis.call('HSET', queued, key, others) else redis.call('HDEL', queued, key) end
  if #ended >= 9 then add_tombstone('a' .. sub(ended, 2, 9)) end
  return at, sub(record, 2, 9)
end

-- Ends a timer, and promotes the arming that is queued behind it, if any. Returns as promote_queued does.
-- record: the record of the timer, if the caller has read it.
local function replace_with_queued(key, record)
  record = record or redis.call('HGET', timers, key) or ''
  remove(key)
  return promote_queued(key, 0, record)
end
