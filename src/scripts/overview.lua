-- overview.lua: how a partition is.
--
-- Purpose: counts by state, what is due and when, and why it is paused, for people and for alarms.
-- Parts: (none)
-- Flags: no-writes
-- KEYS 1 meta, 2 due, 3 quarantine, 4 dead, 5 watch
-- ARGV 1 and so on: how far ahead it counts what is due, in ms
-- Returns: secs, micros, what meta says in the place of the wire version ('': there is no meta), the number of
--   partitions there (''), why it is paused (''), letters trimmed, members of due, of quarantine, of dead, keys
--   enrolled, lowest score of due and quarantine (''), members of due below now, then per ARGV those below then
-- Invariants: the work does not depend on how much there is. Running timers stand in due with the ends of their leases.

local time = redis.call('TIME')
local secs, micros = tonumber(time[1]), tonumber(time[2])
local now = secs * 1000 + math.floor(micros / 1000)
local said = redis.call('HMGET', KEYS[1], 'v', 'p', 'paused', 'trimmed')
local first = redis.call('ZRANGE', KEYS[2], '0', '0', 'WITHSCORES')[2]
local suspect = redis.call('ZRANGE', KEYS[3], '0', '0', 'WITHSCORES')[2]
if suspect and (not first or tonumber(suspect) < tonumber(first)) then first = suspect end
local function below(at) return redis.call('ZCOUNT', KEYS[2], '-inf', '(' .. string.format('%.0f', at)) end
local out = {
  secs, micros, said[1] or '', said[2] or '', said[3] or '', tonumber(said[4]) or 0,
  redis.call('ZCARD', KEYS[2]), redis.call('ZCARD', KEYS[3]), redis.call('ZCARD', KEYS[4]), redis.call('HLEN', KEYS[5]),
  first or '', below(now),
}
for i, ahead in ipairs(ARGV) do out[12 + i] = below(now + tonumber(ahead)) end
return out
