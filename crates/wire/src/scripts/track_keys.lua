-- track_keys.lua: Store the deadlines that listeners have read of attached keys.
--
-- Purpose: A listener reads deadlines of keys that other programs write, and stores them, so that a missed expiry event is
--   detected at the deadline. An untracked key becomes a tracked key, a tracked key gets its new deadline, and a key without
--   a deadline becomes untracked. A waiting retry ends if its key was written again. A call has at most 1,000 keys.
-- Parts: prelude, timers, queued_timers, expiry_history
-- Flags: (none: refused when the server is out of memory; the next scan tracks the keys)
-- KEYS 1 meta, 2 due, 3 quarantine, 4 timers, 5 timer_states, 6 queued, 7 tombstones, 8 expiry_history,
--   9 expiry_history_old, 10 checks, 11 tracked, 12 values, 13 tried
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 the highest number of a heartbeat key below, or time in ms of a reading without one, 5 '1' if keys are written back
--   for their retries; else '0',
--   6 the server of all positions in the call ('' if there is only one server),
--   7 how many keys may be tracked, 8 how long before its deadline a key is read again, in ms (0: not),
--   then per key: key; deadline in ms (0: it has none, or is deleted); number of the last heartbeat key; count of the key's
--   expiries since (0 and 0: none was received); time of the reading in µs; copy of the value ('': none was read); with a
--   named server: when the key was requested, in ms of this partition's clock
-- Returns: secs, micros, the next check (score, or ''), then per key: 0 stale, 1 tracked, 2 tracked before, 3 no room,
--   4 tracked, and a copy is wanted: there is none, or none will be read before the deadline; 5 keylapse has written the key
--   back, 6 untracked
-- Invariants: A reading is stale after an action at a later position, and after a check at a later time that has untracked
--   the key. The earlier of two readings at one position is stale. A reading without a heartbeat key is stale within ten
--   seconds of the key's last heartbeat key, and after a later reading. If a key was read on two servers, a reading is stale
--   that was requested before the last write about the key. A copy is kept until another replaces it, even when the deadline
--   changes. An entry without a copy gets that of an earlier reading of the same deadline (2).

local max_tracked, reread_before = tonumber(ARGV[7]), tonumber(ARGV[8])
local BASE, WIDTH = 8, node == '' and 6 or 7
local MIN_SILENCE = 10000
local CHECK_AFTER = 2 -- in the millisecond of its deadline a key still exists

local function check_time(deadline)
  local early = deadline - reread_before
  if reread_before > 0 and early > now then return early end
  return deadline + CHECK_AFTER
end

-- Stores a copy of a value. Returns when it was read, as the entry of the key has it.
local function store_copy(key, stamp, copy, previous)
  if previous == '' or redis.call('HGET', values, key) ~= copy then redis.call('HSET', values, key, copy) end
  return struct.pack('>I8', math.floor(stamp / 1000))
end

-- A later reading was written first. The copy of this one is kept if the later one has none, and the same deadline.
local function keep_late_copy(key, own, deadline, stamp, copy)
  if copy == '' or own.deadline ~= deadline or own.value_read ~= '' then return 0 end
  own.value_read = store_copy(key, stamp, copy, '')
  write_tracked(key, own)
  return 2
end

local function track_key(key, deadline, n, c, stamp, copy, requested_at)
  local bytes = redis.call('HGET', tracked, key)
  local old = bytes and read_tracked(bytes)
  local past = load_history(key)
  if is_overtaken(past, old, requested_at) or was_untracked_after(past, stamp, requested_at) then return 0 end
  local own = old and old.node == node and old
  if n == 0 then
    -- Without a heartbeat key there are only times to compare. They count from MIN_SILENCE ms after the last heartbeat key
    -- that was recorded with the key.
    local read = stamp / 1000
    if read <= floor or read - math.max(past.n, old and old.n or 0) < MIN_SILENCE then return 0 end
    if own and stamp < own.stamp then return keep_late_copy(key, own, deadline, stamp, copy) end
  elseif n <= floor or is_before(n, c, past.n, past.c) then
    return 0
  elseif own and is_earlier(n, c, stamp, own) then
    return keep_late_copy(key, own, deadline, stamp, copy)
  end
  if deadline == 0 then
    if old then untrack_at(key, n, c, stamp) end
    return 6
  end
  local kept = old and old.value_read or ''
  if own and own.deadline == deadline and copy == '' then
    redis.call('ZADD', checks, 'NX', check_time(deadline), key)
    return kept == '' and reread_before > 0 and 4 or 2
  end
  local written_until, waits = write_back_deadline(key)
  if written_until == deadline then return 5 end
  if waits then replace_with_queued(key) end
  if not old and redis.call('HLEN', tracked) >= max_tracked then return 3 end
  local at = check_time(deadline)
  local wanted = copy == '' and reread_before > 0 and (kept == '' or at > deadline)
  if copy ~= '' then kept = store_copy(key, stamp, copy, kept) end
  write_tracked(key, { deadline = deadline, n = n, c = c, stamp = stamp, node = node, announced_elsewhere = 0,
    value_read = kept })
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
