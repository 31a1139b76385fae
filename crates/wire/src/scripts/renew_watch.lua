-- renew_watch.lua: Ask a partition to publish starts and ends of attempts for a while.
--
-- Purpose: An operator who watches a topic (the tail) repeats this call before its time ends. Without it, no script
--   publishes starts or ends.
-- Parts: prelude
-- Flags: allow-oom
-- KEYS 1 meta
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel, 4 for how long, in ms, at most 60,000
-- Returns: secs, micros, until when, in ms
-- Invariants: A call never shortens the time of another.

local MAX_WATCH = 60000
local current = tonumber(meta[5] or '') or 0
local watched_until = now + math.max(0, math.min(tonumber(ARGV[4]) or 0, MAX_WATCH))
-- A time further ahead was written before the clock was set back.
if current >= watched_until and current <= now + MAX_WATCH then return { secs, micros, current } end
redis.call('HSET', KEYS[1], 'watched_until', string.format('%.0f', watched_until))
return { secs, micros, watched_until }
