-- replay.lua: Arm a dead letter again.
--
-- Purpose: An operator replays a dead letter: its record becomes a waiting timer that is due now (dead letter -> waiting),
--   with the same arming ID or a new one.
-- Parts: prelude, timers, queued_timers
-- Flags: (none)
-- KEYS 1 meta, 2 due, 3 quarantine, 4 timers, 5 timer_states, 6 queued, 7 tombstones, 8 dead, 9 dead_letters, 10 tried
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 '1' for a repeat of an unanswered call, else '0', 5 name of the dead letter, 6 ID of this replay (8 bytes), 7 new
--   arming ID (8 bytes), or '' to keep that of the dead letter
-- Returns: secs, micros, code, deadline (0 unless this call has armed it), why listeners could not be notified (or '')
--   codes: 0 no such dead letter, 1 replayed, 2 the key has a timer (nothing was changed), 3 the record is unreadable
--   (nothing was changed)
-- Invariants: A timer is never replaced, not even by its own dead letter. A repeat finds its own ID, and is answered as the
--   first call was, whatever has happened to the timer since.

local dead, dead_letters = KEYS[8], KEYS[9]
local member, replay_tombstone, new_id = ARGV[5], 'p' .. ARGV[6], ARGV[7]
if ARGV[4] == '1' and redis.call('ZSCORE', tombstones, replay_tombstone) then return { secs, micros, 1, 0, '' } end
local key = sub(member, 17)
if redis.call('HEXISTS', timers, key) == 1 then return { secs, micros, 2, 0, '' } end
local value = redis.call('HGET', dead_letters, member)
if not value then return { secs, micros, 0, 0, '' } end
local record = #value >= 14 and byte(value) == 1 and sub(value, 15 + struct.unpack('>I4', value, 11)) or ''
if #record < 17 or not is_readable(record) then return { secs, micros, 3, 0, '' } end

local id = new_id == '' and sub(record, 2, 9) or new_id
redis.call('HDEL', timer_states, key)
redis.call('HSET', timers, key, sub(record, 1, 1) .. id .. struct.pack('>I8', now_rounded_up) .. sub(record, 18))
index_timer(due, now_rounded_up, key)
redis.call('ZREM', dead, member)
redis.call('HDEL', dead_letters, member)
-- The arming waits again: a tombstone of its end would refuse it.
redis.call('ZREM', tombstones, 'a' .. id)
-- Written last: a repeat that finds it does nothing more.
add_tombstone(replay_tombstone)
publish_wake_ups()
return { secs, micros, 1, now_rounded_up, wake_up_error }
