-- peek.lua: what is next in each index.
--
-- Purpose: one look at many partitions, for the sweep. In a cluster one partition a call;
--   elsewhere up to 250.
-- Parts: (none)
-- Flags: no-writes
-- KEYS per partition: due, quarantine
-- ARGV (none)
-- Returns: secs, micros, then per key: the lowest score, or '' if there is nothing
-- Invariants: an index that cannot be read has nothing due; its own claims say what is wrong.

local time = redis.call('TIME')
local out = { tonumber(time[1]), tonumber(time[2]) }
for i, key in ipairs(KEYS) do
  local first = redis.pcall('ZRANGE', key, 0, 0, 'WITHSCORES')
  out[2 + i] = first[2] or ''
end
return out
