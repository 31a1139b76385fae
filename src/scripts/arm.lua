-- arm.lua: create or replace timers.
--
-- Purpose: put timers into the index; at most 1,000 a call, no key twice.
-- Parts: prelude, succession
-- Flags: (none: refused up front when the server is out of memory)
-- KEYS 1 meta, 2 due, 3 quarantine, 4 rec, 5 run, 6 next, 7 tombstones
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 'replace' or 'absent', 5 '1' for a repeat of an unanswered call, else '0',
--   6 the arming id of the timer whose running attempt makes the call, or '',
--   then per timer: key; when, as '+ms' from now or ms since 1970;
--   record head (version byte, arming id of 8 bytes); payload
-- Returns: secs, micros, then per timer: code, deadline; last why listeners could not be told (or '')
--   codes: 0 armed, 1 replaced, 2 kept for after the running attempt,
--   3 exists, 4 superseded (a repeat whose arming was withdrawn or has been
--   followed by another)
-- Errors: those of the prelude, BADDEADLINE, ATTACHED (nothing was written)
-- Invariants: a repeat is answered as the first call was, or by what has become
--   of its arming since; the deadline is never earlier than asked for; timers
--   armed for one millisecond in one call order come out in that order.

if meta[6] == 'attached' then
  return redis.error_reply('ATTACHED ' .. KEYS[1] .. ' belongs to a topic whose keys are written by others')
end

local absent, repeated = ARGV[4] == 'absent', ARGV[5] == '1'
local BASE, WIDTH = 6, 4
local count = (#ARGV - BASE) / WIDTH

local keys, ats = {}, {}
for i = 1, count do
  local at = BASE + (i - 1) * WIDTH
  keys[i] = ARGV[at + 1]
  ats[i] = deadline_of(ARGV[at + 2])
  if not ats[i] then return redis.error_reply('BADDEADLINE a deadline lies beyond 2^43 ms') end
end

-- A key that is in an index already: rare, and kept off the fast path.
local function over(key, id, record, at)
  local old = redis.call('HGET', rec, key)
  local state = redis.call('HGET', run, key)
  if old and #old >= 17 and sub(old, 2, 9) == id then
    return redis.call('ZSCORE', tombstones, 'r' .. id) and 1 or 0, present_deadline(old, state)
  end
  -- What was kept for later may still be, though the attempt has been handed back.
  local kept = select(2, kept_record(redis.call('HGET', nxt, key) or ''))
  if #kept >= 17 and sub(kept, 2, 9) == id then return 2, (struct.unpack('>I8', kept, 10)) end
  if repeated and redis.call('ZSCORE', tombstones, 'a' .. id) then return 4, 0 end
  if absent then return 3, 0 end
  if kept ~= '' then tombstone('a' .. sub(kept, 2, 9)) end
  if repeated then redis.call('ZREM', tombstones, 'r' .. id) end
  if state and byte(state, 2) == 1 then
    redis.call('HSET', nxt, key, old and sub(old, 2, 9) == ARGV[6] and 'O' .. record or record)
    return 2, at
  end
  if kept ~= '' then redis.call('HDEL', nxt, key) end
  tombstone('r' .. id, old and 'a' .. sub(old, 2, 9))
  local lost = state and byte(state, 15) or 0
  install(key, record, at, lost)
  if lost == 0 then redis.call('HDEL', run, key) end
  return 1, at
end

local known = redis.call('ZMSCORE', due, unpack(keys))
local quarantined = redis.call('EXISTS', quarantine) == 1
local leftovers = redis.call('EXISTS', run) == 1
-- Timers for the same millisecond keep the order of arming by a fraction.
local seq = tonumber(meta[4]) == now and tonumber(meta[5]) or 0
local scores, records, fresh, soonest, out = {}, {}, {}, math.huge, { secs, micros }
local packed_at, packed

for i = 1, count do
  local key, at = keys[i], ats[i]
  local base = BASE + (i - 1) * WIDTH
  local first = ARGV[base + 3]
  if at ~= packed_at then packed_at, packed = at, struct.pack('>I8', at) end
  local record = first .. packed .. ARGV[base + 4]
  local code, deadline = 0, at
  if known[i] or quarantined and redis.call('ZSCORE', quarantine, key) then
    code, deadline = over(key, sub(first, 2, 9), record, at)
  elseif repeated and redis.call('ZSCORE', tombstones, 'a' .. sub(first, 2, 9)) then
    code, deadline = 4, 0
  else
    -- What it has replaced before it ended is not what it does now.
    if repeated then redis.call('ZREM', tombstones, 'r' .. sub(first, 2, 9)) end
    local score = at + (seq < 1023 and seq or 1023) / 1024
    seq = seq + 1
    soonest = math.min(soonest, score)
    local n = #fresh
    fresh[n + 1] = key
    scores[2 * n + 1], scores[2 * n + 2] = score, key
    records[2 * n + 1], records[2 * n + 2] = key, record
  end
  out[2 * i + 1], out[2 * i + 2] = code, deadline
end

if #fresh > 0 then
  -- What a lost index entry left behind must not speak for a new timer.
  if leftovers then redis.call('HDEL', run, unpack(fresh)) end
  sooner(due, soonest)
  redis.call('HSET', rec, unpack(records))
  redis.call('ZADD', due, unpack(scores))
  redis.call('HSET', KEYS[1], 'ms', now, 'n', seq)
end
wake()
out[#out + 1] = untold
return out
