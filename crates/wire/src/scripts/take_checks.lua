-- take_checks.lua: Take tracked keys that are due for a check.
--
-- Purpose: Gives due checks to one listener, which then reads the keys and calls apply_checks. The keys stay tracked, and
--   their next check is put off, so that other listeners leave them alone. A call has at most 1,000 keys.
-- Parts: prelude, timers
-- Flags: allow-oom
-- KEYS 1 meta, 2 checks, 3 tracked, 4 duties
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 how many at most, 5 how long their next check is put off, in ms, 6 how long they must have been due, in ms, 7 ID of
--   the caller
-- Returns: secs, micros, the next check (score, or ''), keys, heads of their entries; if none is due and another caller took
--   the last: when, in ms, else ''
-- Invariants: A check may be made twice. If a listener ends before it has applied a check, or the answer is lost, the key is
--   due again after the time of 5.

local checks, tracked, duties = KEYS[2], KEYS[3], KEYS[4]
local ENTRY_HEAD, NAMED, NAMED_HEAD_EXTRA = 28, 128, 9 -- see expiry_history.lua
local keys = redis.call('ZRANGE', checks, '-inf', now - tonumber(ARGV[6]), 'BYSCORE', 'LIMIT', 0, ARGV[4])
local taken, heads = {}, {}
if #keys > 0 then
  local scores = {}
  for i, bytes in ipairs(redis.call('HMGET', tracked, unpack(keys))) do
    if bytes and #bytes >= ENTRY_HEAD then
      local n, named = #taken + 1, byte(bytes) - NAMED
      taken[n], heads[n] = keys[i], sub(bytes, 1, named < 0 and ENTRY_HEAD or ENTRY_HEAD + NAMED_HEAD_EXTRA + named)
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
local last_check = #taken == 0 and redis.call('HMGET', duties, 'checker', 'checked_at')
return { secs, micros, head_of(checks) or '', taken, heads, last_check and last_check[1] ~= ARGV[7] and last_check[2] or '' }
