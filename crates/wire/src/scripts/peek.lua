-- peek.lua: Read the lowest score of each index.
--
-- Purpose: The sweep of a listener reads with it when timers of many partitions are next due. In a cluster a call has one
--   partition, elsewhere up to 250.
-- Parts: (none)
-- Flags: no-writes
-- KEYS per partition: due, quarantine
-- ARGV (none)
-- Returns: secs, micros, then per key: the lowest score, or '' if there is none
-- Invariants: An index that cannot be read counts as empty; the error comes from the next claim.

local time = redis.call('TIME')
local out = { tonumber(time[1]), tonumber(time[2]) }
for i, key in ipairs(KEYS) do
  local first = redis.pcall('ZRANGE', key, 0, 0, 'WITHSCORES')
  out[2 + i] = first[2] or ''
end
return out
