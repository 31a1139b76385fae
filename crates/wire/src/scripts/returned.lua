-- returned.lua: a key was written back, and has expired.
--
-- Purpose: say so before its retry runs, so that its announcement, heard by then or later, is no lapse.
-- Parts: prelude, timers, succession, history
-- Flags: allow-oom
-- KEYS 1 meta, 2 due, 3 quarantine, 4 rec, 5 run, 6 next, 7 tombstones, 8 history, 9 history_old, 10 checks, 11 watch,
--   12 values, 13 tried
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 0 (no canary is named), 5 '1' where keys are written back for their retries,
--   6 the name of the server of all positions in the call ('' where there is one), 7 key,
--   8 the deadline that it was given, in ms
-- Returns: secs, micros, 1 if its announcement is still to come, else 0
-- Invariants: for each deadline, one announcement is taken for that of the key that was written back.

turn_pages(tonumber(ARGV[4]))
local key, deadline = ARGV[7], tonumber(ARGV[8])
local past = recall(key)
local owed = past.returned ~= deadline and past.back ~= deadline
if owed then
  past.owed, past.back = math.min(past.owed + 1, 255), deadline
  remember(key, past)
end
return { secs, micros, owed and 1 or 0 }
