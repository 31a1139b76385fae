-- repair.lua: Do one step of the slow repair.
--
-- Purpose: A listener goes through all entries of a partition and repairs those that a failure has left. A timer without an
--   index entry, or with one that never comes due, gets one (waiting or claimed). A queued arming without a timer is
--   promoted (queued -> waiting). States without a record and wrong members of `tried` are deleted, and missing members are
--   added. Claimers, tombstones, journal entries and watches that are over are deleted.
-- Parts: prelude, timers, tail_journal, queued_timers
-- Flags: allow-oom
-- KEYS 1 meta, 2 due, 3 quarantine, 4 timers, 5 timer_states, 6 queued, 7 tombstones, 8 claimers, 9 tried
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 which to scan: 'timers', 'timer_states', 'queued', 'claimers' or 'tried'; or 'tombstones', of which a call deletes up
--   to 1,000, 5 cursor, 6 how many to examine, 7 lease in ms
-- Returns: secs, micros, next cursor, how many were repaired, how many were examined

local which, lease, repaired = ARGV[4], tonumber(ARGV[7]), 0
local CLAIMER_AGE = 86400000

local function score_of(key)
  return redis.call('ZSCORE', due, key) or redis.call('ZSCORE', quarantine, key)
end
local function is_placed(key)
  local score = score_of(key)
  return score and tonumber(score) < MAX_DEADLINE -- beyond it, the timer never comes due
end

local fixers = {}

-- A claimed timer gets a lease from now on, because its listener may run it.
function fixers.timers(key, record)
  if is_placed(key) then return end
  local state = redis.call('HGET', timer_states, key)
  if not state or #state < 25 then state = fresh_state(0) end
  local at = byte(state, 2) == 1 and now + lease or present_deadline(record, state)
  if at == 0 or at >= MAX_DEADLINE then at = now end -- its claim makes it a dead letter
  index_timer(byte(state, 15) >= QUARANTINE_AT and quarantine or due, at, key)
  if is_tried(state) then add_tried(key, record, at) end
  return true
end

function fixers.timer_states(key, state)
  local record = redis.call('HGET', timers, key)
  if not record then
    redis.call('HDEL', timer_states, key)
    remove_tried(key)
    return true
  end
  local at = #state >= 25 and is_tried(state) and score_of(key)
  if not at or redis.call('ZSCORE', tried, '>' .. key) == at then return end
  add_tried(key, record, at)
  return true
end

function fixers.tried(member)
  local key = sub(member, 2)
  local state = redis.call('HGET', timer_states, key)
  if state and is_tried(state) and redis.call('HEXISTS', timers, key) == 1 then return end
  redis.call('ZREM', tried, member)
  return true
end

function fixers.queued(key)
  if redis.call('HEXISTS', timers, key) == 1 then return end
  redis.call('HDEL', timer_states, key) -- it must not count for the next arming
  promote_queued(key, 0, '')
  return true
end

-- The entry of a claimer answers a repeat of its last claim, which comes within minutes.
function fixers.claimers(claimer, claim)
  if claimer == 'last_claimer' or claimer == 'standby' then return end -- the last claimer, and the standby
  if #claim >= 16 and now - struct.unpack('>I8', claim, 9) < CLAIMER_AGE then return end
  redis.call('HDEL', KEYS[8], claimer)
  return true
end

if which == 'tombstones' then
  local gone = remove_old_tombstones(1000)
  if LOGGED then flush_log(true) end
  if meta[5] and (tonumber(meta[5]) or 0) <= now then redis.call('HDEL', KEYS[1], 'watched_until') end
  return { secs, micros, gone == 1000 and 1 or 0, gone, gone }
end

local hashes = { timers = timers, timer_states = timer_states, queued = queued, claimers = KEYS[8] }
local page
if which == 'tried' then
  page = redis.call('ZSCAN', tried, ARGV[5], 'COUNT', ARGV[6])
else
  page = redis.call('HSCAN', hashes[which], ARGV[5], 'COUNT', ARGV[6])
end
for i = 1, #page[2], 2 do
  if fixers[which](page[2][i], page[2][i + 1]) then repaired = repaired + 1 end
end
publish_wake_ups()
return { secs, micros, page[1], repaired, #page[2] / 2 }
