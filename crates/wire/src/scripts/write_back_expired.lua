-- write_back_expired.lua: Record that a key which was written back has expired.
--
-- Purpose: A listener calls it before it runs the retry. The expiry event of the key, received before or later, then makes
--   no lapse.
-- Parts: prelude, timers, queued_timers, expiry_history
-- Flags: allow-oom
-- KEYS 1 meta, 2 due, 3 quarantine, 4 timers, 5 timer_states, 6 queued, 7 tombstones, 8 expiry_history,
--   9 expiry_history_old, 10 checks, 11 tracked, 12 values, 13 tried
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 0 (no heartbeat key is named), 5 '1' if keys are written back for their retries,
--   6 the server of all positions in the call ('' if there is only one server), 7 key, 8 the deadline that it was given, in
--   ms
-- Returns: secs, micros, 1 if its expiry event is still to come; 0 if that was recorded before, or if this is a repeat
-- Invariants: For each deadline, one expiry event counts as that of the key that was written back.

rotate_history(tonumber(ARGV[4]))
local key, deadline = ARGV[7], tonumber(ARGV[8])
local past = load_history(key)
local owed = past.unreported_deadline ~= deadline and past.reported_deadline ~= deadline
if owed then
  past.events_owed, past.reported_deadline = math.min(past.events_owed + 1, 255), deadline
  save_history(key, past)
end
return { secs, micros, owed and 1 or 0 }
