-- apply_checks.lua: what checks have found.
--
-- Purpose: forget, fire or check again; at most 1,000 keys a call.
-- Parts: prelude, timers, queued_timers, expiry_history
-- Flags: allow-oom
-- KEYS 1 meta, 2 due, 3 quarantine, 4 timers, 5 timer_states, 6 queued, 7 tombstones, 8 expiry_history, 9 expiry_history_old, 10 checks, 11 tracked,
--   12 values, 13 tried
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 the highest number of a canary below, or time in ms of what has none,
--   5 '1' where keys are written back for their retries; else '0',
--   6 the name of the server of all positions in the call ('' where there is one),
--   then per key: 'forget', 'fire' or 'again', key, head of the watch that was checked, number of the
--   last canary, count since, time of the check in µs, arming id; then for 'fire' its flags, for 'again'
--   when to check (ms), for 'forget' 0; then, where the server has a name, number of the last canary and count since
--   on the server of the watch, when the key was checked (0 and 0: that is not known)
-- Returns: secs, micros, the next check (score, or ''), then per key: 1 done, 0 the watch has changed
--   since
-- Errors: those of the prelude, BADVERDICT (nothing was written)
-- Invariants: a verdict holds only for the watch that was checked. A firing leaves a trace, so
--   that a late note of the same expiry does not fire again.

local BASE, WIDTH = 6, node == '' and 8 or 10
local verdicts = {}

function verdicts.again(key, old, n, c, stamp, id, at)
  redis.call('ZADD', checks, at, key)
end

function verdicts.forget(key, old, n, c, stamp)
  untrack_at(key, n, c, stamp)
end

function verdicts.fire(key, old, n, c, stamp, id, flags, old_n, old_c)
  local value = value_of(key, old)
  untrack_at(key, n, c, stamp, { old.n, old.c, n, c, old_n, old_c, from = old.node, upto = node })
  local _, waits = write_back_deadline(key)
  if waits then replace_with_queued(key) end
  add_lapse(key, id, old.deadline, flags, value)
end

for base = BASE, #ARGV - 1, WIDTH do
  if not verdicts[ARGV[base + 1]] then
    return redis.error_reply('BADVERDICT ' .. ARGV[base + 1] .. ' is no verdict')
  end
end

rotate_history(tonumber(ARGV[4]))
local out = { secs, micros, '' }
for base = BASE, #ARGV - 1, WIDTH do
  local key, expected = ARGV[base + 2], ARGV[base + 3]
  local bytes = redis.call('HGET', tracked, key)
  local same = bytes and sub(bytes, 1, head_size(bytes)) == expected
  if same then
    verdicts[ARGV[base + 1]](key, read_tracked(bytes), tonumber(ARGV[base + 4]), tonumber(ARGV[base + 5]),
      tonumber(ARGV[base + 6]), ARGV[base + 7], tonumber(ARGV[base + 8]), WIDTH > 8 and tonumber(ARGV[base + 9]) or 0,
      WIDTH > 8 and tonumber(ARGV[base + 10]) or 0)
  end
  out[#out + 1] = same and 1 or 0
end
out[3] = head_of(checks) or ''
publish_wake_ups()
return out
