-- expiry_history.lua: Remember which expiries of attached keys were recorded.
--
-- Purpose: Each listener of an attached topic receives the same expiry of a key, and only one may make a lapse of it. An
--   expiry has a position in its server's stream: the number of the last heartbeat key, and the count of the key's expiries
--   since. This part keeps the positions that were recorded, adds lapses (as waiting or queued timers), and untracks keys.
-- KEYS 8 expiry_history, 9 expiry_history_old, 10 checks, 11 tracked, 12 values
-- ARGV 5 '1' if keys are written back for their retries,
--   6 the server of all positions in the call ('' if there is only one server)
-- Invariants: A reading never undoes an action at a later position. All positions that are forgotten are at or below the
--   floor, and a call that names one is refused as stale.

local restores = ARGV[5] == '1'
local node = ARGV[6]
local expiry_history, expiry_history_old, checks, tracked, values = KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]

-- The history is in two hashes. When the current one is MAX_AGE ms old, or has MAX_KEYS keys and is MIN_AGE ms old, it
-- replaces the old one, which is deleted as a whole. Numbers of heartbeat keys are ms. Age is measured by the highest number
-- of all calls, because a late listener may fill the hash.
local MAX_AGE, MAX_KEYS, MIN_AGE = 300000, 500000, 3000
local floor = 0

-- Reads the floor, and rotates the hashes if the current one is old or large enough. `newest` is the highest number of a
-- heartbeat key in this call. Numbers ahead of the clock do not count: otherwise all later positions would be refused. If
-- the clock was set back since the last rotation, the measurement starts again.
local function rotate_history(newest)
  local stored = redis.call('HMGET', KEYS[1], 'history_rotated', 'history_floor', 'history_newest')
  local last, stored_newest = tonumber(stored[1]), tonumber(stored[3]) or 0
  floor = tonumber(stored[2]) or 0
  newest = math.min(newest, now)
  if last and last > now then
    last, stored_newest, floor = now, 0, 0
    redis.call('HSET', KEYS[1], 'history_rotated', now, 'history_floor', 0)
  end
  if newest > stored_newest then redis.call('HSET', KEYS[1], 'history_newest', newest) end
  newest = math.max(newest, math.min(stored_newest, now))
  if not last then return newest > 0 and redis.call('HSET', KEYS[1], 'history_rotated', newest) end
  local age = newest - last
  if age < MIN_AGE or age < MAX_AGE and redis.call('HLEN', expiry_history) < MAX_KEYS then return end
  redis.call('UNLINK', expiry_history_old)
  if redis.call('EXISTS', expiry_history) == 1 then redis.call('RENAME', expiry_history, expiry_history_old) end
  floor = last
  redis.call('HSET', KEYS[1], 'history_rotated', newest, 'history_floor', last)
end

local function is_before(n, c, than_n, than_c)
  return n < than_n or n == than_n and c < than_c
end

-- The history of a key on a server without a name has these fields.
-- n, c: its latest position.
-- stamp: the time of the latest check that has untracked the key, in µs.
-- reported_deadline: of the last write-back whose expiry was reported by write_back_expired.
-- unreported_deadline: of the last write-back whose expiry event was recorded without that report.
-- events_owed: the number of expiry events of reported write-backs that are still to come.
-- traces: ranges of positions, from after the first to the second. A recovery has fired one expiry of each.
-- gaps: the heartbeat key after a gap, and how many expiries before it were fired for listeners that received them in the
-- gap.
-- recorded: ranges of recorded expiries, sorted and disjoint, each from a heartbeat key to the position of an expiry.
local function unpack_past(kept)
  local past = { traces = {}, gaps = {}, recorded = {} }
  local traces, gaps, at
  past.n, past.c, past.stamp, past.reported_deadline, past.unreported_deadline, past.events_owed, traces, gaps, at =
    struct.unpack('>I8I4I8I8I8BBB', kept)
  for i = 1, traces do
    local an, ac, un, uc
    an, ac, un, uc, at = struct.unpack('>I8I4I8I4', kept, at)
    past.traces[i] = { an, ac, un, uc }
  end
  for i = 1, gaps do
    local heartbeat, fired
    heartbeat, fired, at = struct.unpack('>I8I4', kept, at)
    past.gaps[i] = { heartbeat, fired }
  end
  while at <= #kept do
    local from, n, c
    from, n, c, at = struct.unpack('>I8I8I4', kept, at)
    past.recorded[#past.recorded + 1] = { from, n, c }
  end
  return past
end

-- The history of a key on named servers begins with a byte 128, the time of the last write in ms, and the number of traces.
-- Each trace has the servers of its two ends, and the known end of the first server's stream if they differ. Then each
-- server follows, the most recent last, with its name and its part, as above.
local NAMED = 128

local function with_size(format, text)
  return struct.pack(format, #text) .. text
end

local function unpack_sized(format, kept, at)
  local size, from = struct.unpack(format, kept, at)
  return sub(kept, from, from + size - 1), from + size
end

local function unpack_named(kept, past)
  local traces, at
  past.changed, traces, at = struct.unpack('>I8B', kept, 2)
  for i = 1, traces do
    local trace = {}
    trace[1], trace[2], trace[3], trace[4], trace[5], trace[6], at = struct.unpack('>I8I4I8I4I8I4', kept, at)
    trace.from_node, at = unpack_sized('>B', kept, at)
    trace.to_node, at = unpack_sized('>B', kept, at)
    past.traces[i] = trace
  end
  while at <= #kept do
    local name, body
    name, at = unpack_sized('>B', kept, at)
    body, at = unpack_sized('>I4', kept, at)
    past.others[#past.others + 1] = { name, body }
  end
end

-- Removes the history of this call's server from those of all servers, and returns it.
local function remove_own_past(others)
  for i, other in ipairs(others) do
    if other[1] == node then return unpack_past(table.remove(others, i)[2]) end
  end
end

-- Returns the history of a key. The part of this call's server is unpacked, and the others stay packed. Write-backs are in
-- the part that was written last, because their deadlines identify them on each server.
local function load_history(key)
  local kept, old = redis.call('HGET', expiry_history, key), nil
  if not kept then
    old = redis.call('HGET', expiry_history_old, key)
    kept = old
  end
  local past = { n = 0, c = 0, stamp = 0, reported_deadline = 0, unreported_deadline = 0, events_owed = 0,
    traces = {}, gaps = {}, recorded = {}, old = old, others = {}, changed = 0 }
  local last
  if kept and byte(kept) < NAMED then
    last = unpack_past(kept)
    if node == '' then
      last.old, last.others, last.changed = old, {}, 0
      return last
    end
  elseif kept then
    unpack_named(kept, past)
    last = unpack_past(past.others[#past.others][2])
    -- A caller without the name of a server continues with the last one.
    if node == '' then node = past.others[#past.others][1] end
    local own = remove_own_past(past.others)
    if own then past.n, past.c, past.stamp, past.gaps, past.recorded = own.n, own.c, own.stamp, own.gaps, own.recorded end
  end
  if last then
    past.reported_deadline, past.unreported_deadline = last.reported_deadline, last.unreported_deadline
    past.events_owed = last.events_owed
  end
  return past
end

-- The limits of one key. The oldest trace or gap beyond them is forgotten. The two oldest ranges are merged, as if all
-- expiries between them had been recorded. The server that was used longest ago is forgotten.
local MAX_TRACES, MAX_GAPS, MAX_RANGES, MAX_SERVERS = 16, 8, 8, 4

local function pack_past(past, traces)
  local gaps, ranges = {}, {}
  for _, gap in ipairs(past.gaps) do
    if gap[1] > floor then gaps[#gaps + 1] = struct.pack('>I8I4', unpack(gap)) end
  end
  while #gaps > MAX_GAPS do table.remove(gaps, 1) end
  while #past.recorded > MAX_RANGES do
    local oldest = table.remove(past.recorded, 1)
    past.recorded[1][1] = oldest[1]
  end
  for _, range in ipairs(past.recorded) do
    if range[2] > floor then ranges[#ranges + 1] = struct.pack('>I8I8I4', unpack(range)) end
  end
  return struct.pack('>I8I4I8I8I8BBB', past.n, past.c, past.stamp,
    past.reported_deadline, past.unreported_deadline, past.events_owed, #traces, #gaps)
    .. table.concat(traces) .. table.concat(gaps) .. table.concat(ranges)
end

local function pack_named(past, traces)
  local parts = { char(NAMED) .. struct.pack('>I8B', now, #traces) .. table.concat(traces) }
  for i = math.max(1, #past.others - MAX_SERVERS + 2), #past.others do
    local name, body = unpack(past.others[i])
    parts[#parts + 1] = with_size('>B', name) .. with_size('>I4', body)
  end
  parts[#parts + 1] = with_size('>B', node) .. with_size('>I4', pack_past(past, {}))
  return table.concat(parts)
end

local function pack_trace(trace, named)
  if not named then return struct.pack('>I8I4I8I4', unpack(trace, 1, 4)) end
  local from_node, to_node = trace.from_node or node, trace.to_node or node
  return struct.pack('>I8I4I8I4I8I4', trace[1], trace[2], trace[3], trace[4], trace[5] or 0, trace[6] or 0)
    .. with_size('>B', from_node) .. with_size('>B', to_node)
end

local function save_history(key, past)
  local traces, named = {}, node ~= ''
  for _, trace in ipairs(past.traces) do
    if trace[3] > floor then traces[#traces + 1] = pack_trace(trace, named) end
  end
  while #traces > MAX_TRACES do table.remove(traces, 1) end
  if past.old then redis.call('HDEL', expiry_history_old, key) end
  redis.call('HSET', expiry_history, key, named and pack_named(past, traces) or pack_past(past, traces))
end

-- Returns whether a reading at this position and time came before the reading `than`.
local function is_earlier(n, c, stamp, than)
  return is_before(n, c, than.n, than.c) or n == than.n and c == than.c and stamp < than.stamp
end

-- Moves the latest position and time of a key forward, never back. `stamp` is the time of a check that has untracked the
-- key, or 0 for an expiry event.
local function advance(past, n, c, stamp)
  if is_before(past.n, past.c, n, c) then past.n, past.c = n, c end
  past.stamp = math.max(past.stamp, stamp)
end

-- Returns whether a check has untracked the key after this reading. The key's server stamps both, and without a heartbeat
-- key there is no other order. After that clock was set back, the order is wrong. A stamp ahead of this partition's clock is
-- therefore ignored. A named server has its own clock: its stamp counts only for a reading that was requested no later than
-- the last write.
local function was_untracked_after(past, stamp, requested_at)
  if stamp >= past.stamp then return false end
  if node == '' then return past.stamp <= secs * 1000000 + micros end
  return requested_at <= past.changed
end

-- The entry of a tracked key has a head of ENTRY_HEAD bytes: the deadline, and position and time of the reading. If the
-- server has a name, the first byte is NAMED plus the length of the name. The head then has NAMED_HEAD_EXTRA bytes more (how
-- many expiries another server has announced since, and when this was written, in ms), and the name. If there is a copy of
-- the value, the entry ends with the time of its reading, as 8 bytes of ms. The copy is in `values`, and begins with a byte
-- for its kind.
local ENTRY_HEAD, NAMED_HEAD_EXTRA = 28, 9
local function head_size(bytes)
  local first = byte(bytes) or 0
  return first < NAMED and ENTRY_HEAD or ENTRY_HEAD + NAMED_HEAD_EXTRA + first - NAMED
end

local function read_tracked(bytes)
  local size, seen = head_size(bytes), { node = '', announced_elsewhere = 0, written = 0 }
  if size > ENTRY_HEAD then
    seen.announced_elsewhere, seen.written = struct.unpack('>BI8', bytes, ENTRY_HEAD + 1)
    seen.node = sub(bytes, ENTRY_HEAD + NAMED_HEAD_EXTRA + 1, size)
    bytes = '\0' .. sub(bytes, 2)
  end
  seen.deadline, seen.n, seen.c, seen.stamp = struct.unpack('>I8I8I4I8', bytes)
  seen.value_read = sub(bytes, size + 1)
  return seen
end

local function write_tracked(key, seen)
  local bytes = struct.pack('>I8I8I4I8', seen.deadline, seen.n, seen.c, seen.stamp)
  if seen.node ~= '' then
    bytes = char(NAMED + #seen.node) .. sub(bytes, 2) .. struct.pack('>BI8', seen.announced_elsewhere, now) .. seen.node
  end
  redis.call('HSET', tracked, key, bytes .. seen.value_read)
end

-- Positions of two servers are not compared. A reading of a key that was seen on two servers is accepted only if it was
-- requested after the last write about the key. This partition's clock decides, because it stamps each answer.
local function is_overtaken(past, seen, requested_at)
  if #past.others == 0 and not (seen and seen.node ~= node) then return false end
  return requested_at <= past.changed or seen and requested_at <= seen.written
end

-- Returns the time of the reading of a tracked key's value and the copy, as its lapse has them; '' if there is no copy.
local function value_of(key, old)
  local copy = old.value_read ~= '' and redis.call('HGET', values, key)
  return copy and old.value_read .. copy or ''
end

local function untrack(key)
  redis.call('HDEL', tracked, key)
  redis.call('HDEL', values, key)
  redis.call('ZREM', checks, key)
end

-- Untracks a key as of a position and a time, so that an earlier reading does not track it again. `trace` is that of the
-- recovery that untracks the key, if one does. Without a heartbeat key it covers nothing, and is not kept.
local function untrack_at(key, n, c, stamp, trace)
  untrack(key)
  local past = load_history(key)
  advance(past, n, c, stamp)
  past.traces[#past.traces + 1] = trace
  save_history(key, past)
end

-- Adds a lapse, or queues it behind the present one (a cycle). A deadline ahead of the clock is not believed: the key had
-- another one by then, or the event was forged.
-- flags: 1 recovered, 2 the deadline is known, 4 received without an anchor, 8 vanished; 16 is added for a value.
local KNOWN, AMBIGUOUS = 2, 4
local function add_lapse(key, id, deadline, flags, value)
  if deadline > now then deadline, flags = now, flags - bit.band(flags, KNOWN) end
  local carried = value == '' and char(flags) .. '\0' or char(flags + 16) .. value
  local record = '\1' .. id .. struct.pack('>I8', deadline) .. carried
  local present = redis.call('HGET', timers, key)
  if not present then
    redis.call('HDEL', timer_states, key)
    return install_timer(key, record, now, 0)
  end
  local count, latest = queued_record(redis.call('HGET', queued, key) or '')
  -- This repeats an unanswered call.
  if sub(present, 2, 9) == id or sub(latest, 2, 9) == id then return end
  -- Only the latest record is kept for all queued cycles. If one of them is ambiguous, all are.
  local ambiguous = #latest >= 18 and bit.band(byte(latest, 18), AMBIGUOUS) or 0
  if ambiguous > 0 then record = sub(record, 1, 17) .. char(bit.bor(byte(record, 18), ambiguous)) .. sub(record, 19) end
  redis.call('HSET', queued, key, 'L' .. struct.pack('>I4', count + 1) .. record)
end

-- Returns until when the key of a retry may have been written back, or nil, and whether the retry still waits. If the key's
-- writer comes first, a waiting retry is superseded.
local function write_back_deadline(key)
  if not restores then return end
  local state = redis.call('HGET', timer_states, key)
  if not state or #state < 25 then return end
  local attempt, at = struct.unpack('>I4', state, 11), struct.unpack('>I8', state, 18)
  if attempt > 1 and at > 0 then return at, byte(state, 2) ~= 1 end
end
