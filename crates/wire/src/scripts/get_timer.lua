-- get_timer.lua: Read one timer.
--
-- Purpose: Reads all that a partition has about a key, as of one moment. Operators see from it if the timer waits, is
--   claimed, or has an arming queued behind it.
-- Parts: prelude
-- Flags: no-writes
-- KEYS 1 meta, 2 due, 3 quarantine, 4 timers, 5 timer_states, 6 queued
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel, 4 key
-- Returns: secs, micros, score in due, score in quarantine, record, state, value in queued (nil for each that does not
--   exist)

local key = ARGV[4]
return {
  secs, micros,
  redis.call('ZSCORE', KEYS[2], key),
  redis.call('ZSCORE', KEYS[3], key),
  redis.call('HGET', KEYS[4], key),
  redis.call('HGET', KEYS[5], key),
  redis.call('HGET', KEYS[6], key),
}
