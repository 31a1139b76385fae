-- take_checks.lua: which keys have to be checked.
--
-- Purpose: give the checks that are due to one listener, for a while; at most 1,000 a call.
-- Parts: prelude, timers
-- Flags: allow-oom
-- KEYS 1 meta, 2 checks, 3 tracked, 4 duties
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 how many at most, 5 for how long in ms, 6 how long they must have been due, in ms, 7 slot
-- Returns: secs, micros, the next check (score, or ''), keys, their watches' heads,
--   where there is none and another slot took the last: when that was, in ms; else ''
-- Invariants: nothing depends on a check being made once; a listener that dies with it costs its time.

local checks, tracked, duties = KEYS[2], KEYS[3], KEYS[4]
local SIZE, NAMED, MORE = 28, 128, 9 -- of servers that have names: see history.lua
local keys = redis.call('ZRANGE', checks, '-inf', now - tonumber(ARGV[6]), 'BYSCORE', 'LIMIT', 0, ARGV[4])
local out, heads = {}, {}
if #keys > 0 then
  local scores = {}
  for i, bytes in ipairs(redis.call('HMGET', tracked, unpack(keys))) do
    if bytes and #bytes >= SIZE then
      local n, named = #out + 1, byte(bytes) - NAMED
      out[n], heads[n] = keys[i], sub(bytes, 1, named < 0 and SIZE or SIZE + MORE + named)
      scores[2 * n - 1], scores[2 * n] = now + tonumber(ARGV[5]), keys[i]
    else
      redis.call('ZREM', checks, keys[i])
    end
  end
  if #scores > 0 then
    redis.call('ZADD', checks, unpack(scores))
    redis.call('HSET', duties, 'checker', ARGV[7], 'checked_at', now)
  end
end
local last = #out == 0 and redis.call('HMGET', duties, 'checker', 'checked_at')
return { secs, micros, head_of(checks) or '', out, heads, last and last[1] ~= ARGV[7] and last[2] or '' }
