-- apply_checks.lua: Apply the results of checks to tracked keys.
--
-- Purpose: A listener reads each tracked key at its deadline, and this call applies the results. 'forget' untracks the key,
--   and 'again' sets the time of the next check. 'fire' untracks the key and makes a lapse, because no listener has received
--   its expiry event (tracked -> untracked, and a waiting or queued timer). A call has at most 1,000 keys.
-- Parts: prelude, timers, queued_timers, expiry_history
-- Flags: allow-oom
-- KEYS 1 meta, 2 due, 3 quarantine, 4 timers, 5 timer_states, 6 queued, 7 tombstones, 8 expiry_history,
--   9 expiry_history_old, 10 checks, 11 tracked, 12 values, 13 tried
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 the highest number of a heartbeat key below, or time in ms of a check without one, 5 '1' if keys are written back for
--   their retries; else '0',
--   6 the server of all positions in the call ('' if there is only one server),
--   then per key: 'forget', 'fire' or 'again'; key; head of the entry that was checked; number of the last heartbeat key;
--   count of the key's expiries since; time of the check in µs; arming ID; for 'fire' the flags of the lapse, for 'again'
--   the time of the next check in ms, for 'forget' 0; with a named server: if the entry is of another server, the position
--   that its stream had reached at the check, as number and count (0 and 0: not known)
-- Returns: secs, micros, the next check (score, or ''), then per key: 1 done, 0 the entry has changed since (nothing was
--   changed)
-- Errors: those of the prelude, BADVERDICT (nothing was written)
-- Invariants: A result is applied only to the entry that was checked. A firing leaves a trace, so that a late report of the
--   same expiry does not fire again. A repeat of 'forget' or 'fire' is answered 0.

local BASE, WIDTH = 6, node == '' and 8 or 10
local actions = {}

function actions.again(key, old, n, c, stamp, id, at)
  redis.call('ZADD', checks, at, key)
end

function actions.forget(key, old, n, c, stamp)
  untrack_at(key, n, c, stamp)
end

function actions.fire(key, old, n, c, stamp, id, flags, end_n, end_c)
  local value = value_of(key, old)
  untrack_at(key, n, c, stamp, { old.n, old.c, n, c, end_n, end_c, from_node = old.node, to_node = node })
  local _, waits = write_back_deadline(key)
  if waits then replace_with_queued(key) end
  add_lapse(key, id, old.deadline, flags, value)
end

for base = BASE, #ARGV - 1, WIDTH do
  if not actions[ARGV[base + 1]] then
    return redis.error_reply('BADVERDICT ' .. ARGV[base + 1] .. ' is not forget, fire or again')
  end
end

rotate_history(tonumber(ARGV[4]))
local out = { secs, micros, '' }
for base = BASE, #ARGV - 1, WIDTH do
  local key, expected = ARGV[base + 2], ARGV[base + 3]
  local bytes = redis.call('HGET', tracked, key)
  local unchanged = bytes and sub(bytes, 1, head_size(bytes)) == expected
  if unchanged then
    actions[ARGV[base + 1]](key, read_tracked(bytes), tonumber(ARGV[base + 4]), tonumber(ARGV[base + 5]),
      tonumber(ARGV[base + 6]), ARGV[base + 7], tonumber(ARGV[base + 8]), WIDTH > 8 and tonumber(ARGV[base + 9]) or 0,
      WIDTH > 8 and tonumber(ARGV[base + 10]) or 0)
  end
  out[#out + 1] = unchanged and 1 or 0
end
out[3] = head_of(checks) or ''
publish_wake_ups()
return out
