-- renew_watch.lua: have a partition tell what it starts and ends, for a while.
--
-- Purpose: whoever looks on says so, and again before that is over. So nothing is told when nobody looks.
-- Parts: prelude
-- Flags: allow-oom
-- KEYS 1 meta
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel, 4 for how long, in ms, at most 60,000
-- Returns: secs, micros, until when, in ms
-- Invariants: nobody who looks on for longer is cut short.

local LONGEST = 60000
local stands = tonumber(meta[5] or '') or 0
local ends = now + math.max(0, math.min(tonumber(ARGV[4]) or 0, LONGEST))
-- What lies further ahead was said before the clock was set back.
if stands >= ends and stands <= now + LONGEST then return { secs, micros, stands } end
redis.call('HSET', KEYS[1], 'watched_until', string.format('%.0f', ends))
return { secs, micros, ends }
