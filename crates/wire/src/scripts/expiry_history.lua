-- expiry_history.lua: what is remembered of an attached key's expiries.
--
-- Purpose: say of an expiry, by its position in its server's stream, whether it was noted before. A
--   position is the number of the last canary heard and how many expiries of the key since.
-- KEYS 8 expiry_history, 9 expiry_history_old, 10 checks, 11 tracked, 12 values
-- ARGV 5 '1' where keys are written back for their retries,
--   6 the name of the server of all positions in the call ('' where there is one)
-- Invariants: what was done at a position is never undone by what was read before it. All that is
--   forgotten lies at or below the floor, and what lies there is refused as stale.

-- Whether keys are written back for their retries.
local restores = ARGV[5] == '1'
local node = ARGV[6]
local expiry_history, expiry_history_old, checks, tracked, values = KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]

-- Two hashes take turns: the older one goes as a whole. Numbers of canaries are milliseconds.
-- A listener that is late may fill the page: so it turns at the highest number of all calls.
local SPAN, MOST, LEAST = 300000, 500000, 3000
local floor = 0

-- Neither do pages turn at a number that the clock has not reached, or it would refuse all that comes after; and
-- what was turned by a clock that was set back since begins anew.
-- newest: the highest number of a canary in this call
local function rotate_history(newest)
  local turned = redis.call('HMGET', KEYS[1], 'history_rotated', 'history_floor', 'history_newest')
  local last, known = tonumber(turned[1]), tonumber(turned[3]) or 0
  floor = tonumber(turned[2]) or 0
  newest = math.min(newest, now)
  if last and last > now then
    last, known, floor = now, 0, 0
    redis.call('HSET', KEYS[1], 'history_rotated', now, 'history_floor', 0)
  end
  if newest > known then redis.call('HSET', KEYS[1], 'history_newest', newest) end
  newest = math.max(newest, math.min(known, now))
  if not last then return newest > 0 and redis.call('HSET', KEYS[1], 'history_rotated', newest) end
  local age = newest - last
  if age < LEAST or age < SPAN and redis.call('HLEN', expiry_history) < MOST then return end
  redis.call('UNLINK', expiry_history_old)
  if redis.call('EXISTS', expiry_history) == 1 then redis.call('RENAME', expiry_history, expiry_history_old) end
  floor = last
  redis.call('HSET', KEYS[1], 'history_rotated', newest, 'history_floor', last)
end

local function before(n, c, than_n, than_c)
  return n < than_n or n == than_n and c < than_c
end

-- What a server without a name has announced of a key:
--   its latest position;
--   the time of the latest check that has ended an enrolment, in µs;
--   what was written back;
--   traces of recoveries, each a reach of positions of which one was meant;
--   gaps, each by the canary after it, and how many of the expiries before that were fired for those who heard them in
--   the gap;
--   ranges of what was noted, in order and apart, each from a canary on up to an expiry.
local function unpack_past(kept)
  local past = { traces = {}, gaps = {}, noted = {} }
  local traces, gaps, at
  past.n, past.c, past.stamp, past.back, past.returned, past.owed, traces, gaps, at =
    struct.unpack('>I8I4I8I8I8BBB', kept)
  for i = 1, traces do
    local an, ac, un, uc
    an, ac, un, uc, at = struct.unpack('>I8I4I8I4', kept, at)
    past.traces[i] = { an, ac, un, uc }
  end
  for i = 1, gaps do
    local canary, fired
    canary, fired, at = struct.unpack('>I8I4', kept, at)
    past.gaps[i] = { canary, fired }
  end
  while at <= #kept do
    local from, n, c
    from, n, c, at = struct.unpack('>I8I8I4', kept, at)
    past.noted[#past.noted + 1] = { from, n, c }
  end
  return past
end

-- The history of a key of named servers: a byte 128; when it was written last, in ms; how many traces, each with the
-- servers of its ends, and how far it reaches on the first where they are two; then for each server, the latest last,
-- its name and what it has announced, as above.
local NAMED = 128

local function with_size(format, text)
  return struct.pack(format, #text) .. text
end

local function take(format, kept, at)
  local size, from = struct.unpack(format, kept, at)
  return sub(kept, from, from + size - 1), from + size
end

local function unpack_named(kept, past)
  local traces, at
  past.changed, traces, at = struct.unpack('>I8B', kept, 2)
  for i = 1, traces do
    local trace = {}
    trace[1], trace[2], trace[3], trace[4], trace[5], trace[6], at = struct.unpack('>I8I4I8I4I8I4', kept, at)
    trace.from, at = take('>B', kept, at)
    trace.upto, at = take('>B', kept, at)
    past.traces[i] = trace
  end
  while at <= #kept do
    local name, body
    name, at = take('>B', kept, at)
    body, at = take('>I4', kept, at)
    past.others[#past.others + 1] = { name, body }
  end
end

local function own_past(others)
  for i, other in ipairs(others) do
    if other[1] == node then return unpack_past(table.remove(others, i)[2]) end
  end
end

-- What is remembered of a key, as far as this call's server has announced it; that of others is kept as it is.
-- What was written back is told by its deadline, whoever announces it.
local function load_history(key)
  local kept, old = redis.call('HGET', expiry_history, key), nil
  if not kept then
    old = redis.call('HGET', expiry_history_old, key)
    kept = old
  end
  local past = { n = 0, c = 0, stamp = 0, back = 0, returned = 0, owed = 0, traces = {}, gaps = {}, noted = {},
    old = old, others = {}, changed = 0 }
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
    -- Who has no server to name goes on with the last.
    if node == '' then node = past.others[#past.others][1] end
    local own = own_past(past.others)
    if own then past.n, past.c, past.stamp, past.gaps, past.noted = own.n, own.c, own.stamp, own.gaps, own.noted end
  end
  if last then past.back, past.returned, past.owed = last.back, last.returned, last.owed end
  return past
end

-- More recoveries of one key than these, with no note between them, and the oldest is forgotten; and so of
-- gaps. More ranges than these, and the two oldest become one, as if all between them had been noted. Of more
-- servers than these that have had the key, the one whose turn is longest ago is forgotten.
local TRACES, GAPS, RANGES, SERVERS = 16, 8, 8, 4

local function pack_past(past, traces)
  local gaps, noted = {}, {}
  for _, gap in ipairs(past.gaps) do
    if gap[1] > floor then gaps[#gaps + 1] = struct.pack('>I8I4', unpack(gap)) end
  end
  while #gaps > GAPS do table.remove(gaps, 1) end
  while #past.noted > RANGES do
    local oldest = table.remove(past.noted, 1)
    past.noted[1][1] = oldest[1]
  end
  for _, range in ipairs(past.noted) do
    if range[2] > floor then noted[#noted + 1] = struct.pack('>I8I8I4', unpack(range)) end
  end
  return struct.pack('>I8I4I8I8I8BBB', past.n, past.c, past.stamp,
    past.back, past.returned, past.owed, #traces, #gaps)
    .. table.concat(traces) .. table.concat(gaps) .. table.concat(noted)
end

local function pack_named(past, traces)
  local parts = { char(NAMED) .. struct.pack('>I8B', now, #traces) .. table.concat(traces) }
  for i = math.max(1, #past.others - SERVERS + 2), #past.others do
    local name, body = unpack(past.others[i])
    parts[#parts + 1] = with_size('>B', name) .. with_size('>I4', body)
  end
  parts[#parts + 1] = with_size('>B', node) .. with_size('>I4', pack_past(past, {}))
  return table.concat(parts)
end

local function pack_trace(trace, named)
  if not named then return struct.pack('>I8I4I8I4', unpack(trace, 1, 4)) end
  local from, upto = trace.from or node, trace.upto or node
  return struct.pack('>I8I4I8I4I8I4', trace[1], trace[2], trace[3], trace[4], trace[5] or 0, trace[6] or 0)
    .. with_size('>B', from) .. with_size('>B', upto)
end

local function save_history(key, past)
  local traces, named = {}, node ~= ''
  for _, trace in ipairs(past.traces) do
    if trace[3] > floor then traces[#traces + 1] = pack_trace(trace, named) end
  end
  while #traces > TRACES do table.remove(traces, 1) end
  if past.old then redis.call('HDEL', expiry_history_old, key) end
  redis.call('HSET', expiry_history, key, named and pack_named(past, traces) or pack_past(past, traces))
end

-- Whether what was read at one position and time came before what was read at another.
local function earlier(n, c, stamp, than)
  return before(n, c, than.n, than.c) or n == than.n and c == than.c and stamp < than.stamp
end

-- stamp: the time of a check that has ended an enrolment; 0 for an expiry that was heard
local function advance(past, n, c, stamp)
  if before(past.n, past.c, n, c) then past.n, past.c = n, c end
  past.stamp = math.max(past.stamp, stamp)
end

-- Whether a check has ended the enrolment since this reading. The key's server stamps both: without a canary there is no
-- other order. If its clock was set back, the order is wrong. Then the check lies in the future by this partition's clock;
-- or, if the server has a name and a clock of its own, the key was asked for after the last write.
local function has_ended(past, stamp, asked)
  if stamp >= past.stamp then return false end
  if node == '' then return past.stamp <= secs * 1000000 + micros end
  return asked <= past.changed
end

-- The watch of a key: its deadline, position and time of the reading; where its server has a name, how many expiries
-- another server has announced since, when this was written, in ms, and the name, whose length and 128 are the first
-- byte of all. Where a copy of its value is kept follows when that was read, as 8 bytes of ms. The copy begins with
-- one byte that says what it is.
local HEAD, MORE = 28, 9
local function head_size(bytes)
  local first = byte(bytes) or 0
  return first < NAMED and HEAD or HEAD + MORE + first - NAMED
end

local function read_tracked(bytes)
  local size, seen = head_size(bytes), { node = '', answered = 0, written = 0 }
  if size > HEAD then
    seen.answered, seen.written = struct.unpack('>BI8', bytes, HEAD + 1)
    seen.node = sub(bytes, HEAD + MORE + 1, size)
    bytes = '\0' .. sub(bytes, 2)
  end
  seen.deadline, seen.n, seen.c, seen.stamp = struct.unpack('>I8I8I4I8', bytes)
  seen.value_read = sub(bytes, size + 1)
  return seen
end

local function write_tracked(key, seen)
  local bytes = struct.pack('>I8I8I4I8', seen.deadline, seen.n, seen.c, seen.stamp)
  if seen.node ~= '' then
    bytes = char(NAMED + #seen.node) .. sub(bytes, 2) .. struct.pack('>BI8', seen.answered, now) .. seen.node
  end
  redis.call('HSET', tracked, key, bytes .. seen.value_read)
end

-- Positions of two servers are not compared. What was read of a key that another has had, too, is known to be later
-- than all that is written of it only if it was asked for after that: by the clock of this partition, which stamps
-- each answer.
local function is_overtaken(past, seen, asked)
  if #past.others == 0 and not (seen and seen.node ~= node) then return false end
  return asked <= past.changed or seen and asked <= seen.written
end

-- What a lapse carries of a watched key's value: when it was read, and the copy; '' where there is none.
local function value_of(key, old)
  local copy = old.value_read ~= '' and redis.call('HGET', values, key)
  return copy and old.value_read .. copy or ''
end

local function untrack(key)
  redis.call('HDEL', tracked, key)
  redis.call('HDEL', values, key)
  redis.call('ZREM', checks, key)
end

-- Forgets a watch as of a position and a time, so that what was read before does not come back.
-- trace: of the recovery that it ends with, if it does; without a canary it reaches nothing, and is not kept
local function untrack_at(key, n, c, stamp, trace)
  untrack(key)
  local past = load_history(key)
  advance(past, n, c, stamp)
  past.traces[#past.traces + 1] = trace
  save_history(key, past)
end

-- Begins a lapse, or keeps it behind the one that there is. What ends before the deadline that was read had
-- another by then, or was forged: then its deadline is not known.
-- flags: 1 recovered, 2 its deadline was known, 4 heard without an anchor, 8 by policy; 16 is added where
--   it carries a value
local KNOWN, AMBIGUOUS = 2, 4
local function add_lapse(key, id, deadline, flags, value)
  if deadline > now then deadline, flags = now, flags - bit.band(flags, KNOWN) end
  local carried = value == '' and char(flags) .. '\0' or char(flags + 16) .. value
  local record = '\1' .. id .. struct.pack('>I8', deadline) .. carried
  local present = redis.call('HGET', timers, key)
  if not present then
    redis.call('HDEL', timer_states, key)
    return install(key, record, now, 0)
  end
  local count, latest = queued_record(redis.call('HGET', queued, key) or '')
  -- A repeat of an unanswered call.
  if sub(present, 2, 9) == id or sub(latest, 2, 9) == id then return end
  -- The record of the latest stands for all that wait: of which one is in doubt is not known any more.
  local doubt = #latest >= 18 and bit.band(byte(latest, 18), AMBIGUOUS) or 0
  if doubt > 0 then record = sub(record, 1, 17) .. char(bit.bor(byte(record, 18), doubt)) .. sub(record, 19) end
  redis.call('HSET', queued, key, 'L' .. struct.pack('>I4', count + 1) .. record)
end

-- A retry whose key may have been written back: until when, or nil; and whether it still waits. Then it
-- is superseded where the key's writer comes first.
local function write_back_deadline(key)
  if not restores then return end
  local state = redis.call('HGET', timer_states, key)
  if not state or #state < 25 then return end
  local attempt, at = struct.unpack('>I4', state, 11), struct.unpack('>I8', state, 18)
  if attempt > 1 and at > 0 then return at, byte(state, 2) ~= 1 end
end
