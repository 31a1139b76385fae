-- track_keys.lua: deadlines were read.
--
-- Purpose: remember the deadlines of keys that other programs write; at most 1,000 a call.
-- Parts: prelude, timers, queued_timers, expiry_history
-- Flags: (none: refused when the server is out of memory; the next scan makes it good)
-- KEYS 1 meta, 2 due, 3 quarantine, 4 timers, 5 timer_states, 6 queued, 7 tombstones, 8 expiry_history, 9 expiry_history_old, 10 checks, 11 tracked,
--   12 values, 13 tried
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 the highest number of a canary below, or time in ms of what has none,
--   5 '1' where keys are written back for their retries; else '0',
--   6 the name of the server of all positions in the call ('' where there is one),
--   7 how many keys may be enrolled, 8 how long before its deadline a key is read again, in ms (0: not),
--   then per key: key, deadline in ms (0: it has none, or is deleted), number of the last canary, count
--   since (0 and 0: none is heard), time of the reading in µs, copy of the value ('': none was asked for); then,
--   where the server has a name, when the key was asked for, in ms of this partition's clock
-- Returns: secs, micros, the first check (score, or ''), then per key: 0 stale, 1 enrolled,
--   2 known already, 3 no room, 4 enrolled, and a copy is wanted: there is none, or none will be read before
--   the deadline; 5 it was written back by us, 6 not remembered any more
-- Invariants: what was done at a later position stands, and so does what a check found at a later time; of two readings
--   at one position the later holds. Without a canary the later of any two holds, if it was made ten seconds after the
--   last canary. If a key was read on two servers, a reading is refused that was asked for before the last write of the
--   key. A copy stays until there is another, whatever deadline the key is given; where there is none yet, that of an
--   earlier reading of the same deadline is taken.

local cap, again = tonumber(ARGV[7]), tonumber(ARGV[8])
local BASE, WIDTH = 8, node == '' and 6 or 7
local HEARD = 10000
local TOUCH_AFTER = 2 -- in its deadline's own millisecond a key is still there

local function check_at(deadline)
  local early = deadline - again
  if again > 0 and early > now then return early end
  return deadline + TOUCH_AFTER
end

-- Keeps a copy in the place of one that was read before; when it was read, as the watch says it.
local function keep(key, stamp, copy, before)
  if before == '' or redis.call('HGET', values, key) ~= copy then redis.call('HSET', values, key, copy) end
  return struct.pack('>I8', math.floor(stamp / 1000))
end

-- A reading is overtaken by one that was written sooner. Its copy is not, where the other had none.
local function keep_late_copy(key, here, deadline, stamp, copy)
  if copy == '' or here.deadline ~= deadline or here.value_read ~= '' then return 0 end
  here.value_read = keep(key, stamp, copy, '')
  write_tracked(key, here)
  return 2
end

local function track_key(key, deadline, n, c, stamp, copy, asked)
  local bytes = redis.call('HGET', tracked, key)
  local old = bytes and read_tracked(bytes)
  local past = load_history(key)
  if is_overtaken(past, old, asked) or has_ended(past, stamp, asked) then return 0 end
  local here = old and old.node == node and old
  if n == 0 then
    -- Without a canary only times can be compared, from ten seconds after the key's last canary on.
    local read = stamp / 1000
    if read <= floor or read - math.max(past.n, old and old.n or 0) < HEARD then return 0 end
    if here and stamp < here.stamp then return keep_late_copy(key, here, deadline, stamp, copy) end
  elseif n <= floor or before(n, c, past.n, past.c) then
    return 0
  elseif here and earlier(n, c, stamp, here) then
    return keep_late_copy(key, here, deadline, stamp, copy)
  end
  if deadline == 0 then
    if old then untrack_at(key, n, c, stamp) end
    return 6
  end
  local kept = old and old.value_read or ''
  if here and here.deadline == deadline and copy == '' then
    redis.call('ZADD', checks, 'NX', check_at(deadline), key)
    return kept == '' and again > 0 and 4 or 2
  end
  local back, waits = write_back_deadline(key)
  if back == deadline then return 5 end
  if waits then replace_with_queued(key) end
  if not old and redis.call('HLEN', tracked) >= cap then return 3 end
  local at = check_at(deadline)
  local wanted = copy == '' and again > 0 and (kept == '' or at > deadline)
  if copy ~= '' then kept = keep(key, stamp, copy, kept) end
  write_tracked(key, { deadline = deadline, n = n, c = c, stamp = stamp, node = node, answered = 0, value_read = kept })
  redis.call('ZADD', checks, at, key)
  if wanted then return 4 end
  return old and 2 or 1
end

rotate_history(tonumber(ARGV[4]))
local out = { secs, micros, '' }
for base = BASE, #ARGV - 1, WIDTH do
  out[#out + 1] = track_key(ARGV[base + 1], tonumber(ARGV[base + 2]), tonumber(ARGV[base + 3]),
    tonumber(ARGV[base + 4]), tonumber(ARGV[base + 5]), ARGV[base + 6], WIDTH > 6 and tonumber(ARGV[base + 7]) or 0)
end
out[3] = head_of(checks) or ''
publish_wake_ups()
return out
