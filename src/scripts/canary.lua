-- canary.lua: make the next canary.
--
-- Purpose: a numbered key of 1 ms, whose expired event proves that events flow.
-- Parts: (none)
-- Flags: allow-oom
-- KEYS 1 counter; the canary's own name is the counter's, a colon and the number
-- ARGV 1 TTL in ms
-- Returns: number, 1 if it is new, 0 if the last one is still alive
-- Invariants: canaries are heard in the order of their numbers: reading the
--   last one first makes the server expire it before there is a next.

local last = redis.call('GET', KEYS[1])
if last and redis.call('EXISTS', KEYS[1] .. ':' .. last) == 1 then
  return { tonumber(last), 0 }
end
local number = redis.call('INCR', KEYS[1])
redis.call('SET', KEYS[1] .. ':' .. string.format('%.0f', number), '', 'PX', ARGV[1])
return { number, 1 }
