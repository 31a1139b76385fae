-- history.lua: what is remembered of an attached key's expiries.
--
-- Purpose: say of an expiry, by its position in its server's stream, whether it was noted before. A
--   position is the number of the last canary heard and how many expiries of the key since.
-- KEYS 8 history, 9 history_old, 10 checks, 11 watch
-- ARGV 5 '1' where keys are written back for their retries
-- Invariants: what was done at a position is never undone by what was read before it. All that is
--   forgotten lies at or below the floor, and what lies there is refused as stale.

-- Whether keys are written back for their retries.
local restores = ARGV[5] == '1'
local history, history_old, checks, watch = KEYS[8], KEYS[9], KEYS[10], KEYS[11]

-- Two hashes take turns: the older one goes as a whole. Numbers of canaries are milliseconds.
-- A listener that is late may fill the page: so it turns at the highest number of all calls.
local SPAN, MOST, LEAST = 300000, 500000, 3000
local floor = 0

-- newest: the highest number of a canary in this call
local function turn_pages(newest)
  local turned = redis.call('HMGET', KEYS[1], 'turned', 'floor', 'newest')
  local last, known = tonumber(turned[1]), tonumber(turned[3]) or 0
  floor = tonumber(turned[2]) or 0
  if newest > known then redis.call('HSET', KEYS[1], 'newest', newest) end
  newest = math.max(newest, known)
  if not last then return newest > 0 and redis.call('HSET', KEYS[1], 'turned', newest) end
  local age = newest - last
  if age < LEAST or age < SPAN and redis.call('HLEN', history) < MOST then return end
  redis.call('UNLINK', history_old)
  if redis.call('EXISTS', history) == 1 then redis.call('RENAME', history, history_old) end
  floor = last
  redis.call('HSET', KEYS[1], 'turned', newest, 'floor', last)
end

local function before(n, c, than_n, than_c)
  return n < than_n or n == than_n and c < than_c
end

-- The history of a key: latest position, and the time of what was read there; traces of recoveries, each a
-- reach of positions of which one was meant; and for each canary the count up to which expiries were noted:
-- whoever notes has counted from one.
local function recall(key)
  local kept = redis.call('HGET', history, key) or redis.call('HGET', history_old, key)
  local past = { n = 0, c = 0, stamp = 0, back = 0, returned = 0, owed = 0, traces = {}, noted = {} }
  if not kept then return past end
  local traces, at
  past.n, past.c, past.stamp, past.back, past.returned, past.owed, traces, at =
    struct.unpack('>I8I4I8I8I8BB', kept)
  for i = 1, traces do
    local an, ac, un, uc
    an, ac, un, uc, at = struct.unpack('>I8I4I8I4', kept, at)
    past.traces[i] = { an, ac, un, uc }
  end
  while at <= #kept do
    local n, c
    n, c, at = struct.unpack('>I8I4', kept, at)
    past.noted[#past.noted + 1] = { n, c }
  end
  return past
end

-- More recoveries of one key than these, with no note between them, and the oldest is forgotten.
local TRACES = 16

local function remember(key, past)
  local traces, noted = {}, {}
  for _, trace in ipairs(past.traces) do
    if trace[3] > floor then traces[#traces + 1] = struct.pack('>I8I4I8I4', unpack(trace)) end
  end
  while #traces > TRACES do table.remove(traces, 1) end
  for _, one in ipairs(past.noted) do
    if one[1] > floor then noted[#noted + 1] = struct.pack('>I8I4', unpack(one)) end
  end
  redis.call('HSET', history, key, struct.pack('>I8I4I8I8I8BB', past.n, past.c, past.stamp,
    past.back, past.returned, past.owed, #traces)
    .. table.concat(traces) .. table.concat(noted))
end

-- Whether what was read at one position and time came before what was read at another.
local function earlier(n, c, stamp, than)
  return before(n, c, than.n, than.c) or n == than.n and c == than.c and stamp < than.stamp
end

local function advance(past, n, c, stamp)
  if not earlier(n, c, stamp, past) then past.n, past.c, past.stamp = n, c, stamp end
end

-- The watch of a key: its deadline, position and time of the reading, and the copy of its value, which
-- begins with one byte that says what it is.
local HEAD = 28
local function read_watch(bytes)
  local deadline, n, c, stamp = struct.unpack('>I8I8I4I8', bytes)
  return { deadline = deadline, n = n, c = c, stamp = stamp, copy = sub(bytes, HEAD + 1) }
end

local function forget(key)
  redis.call('HDEL', watch, key)
  redis.call('ZREM', checks, key)
end

-- Forgets a watch as of a position, where there is one, so that what was read before does not come back.
-- trace: of the recovery that it ends with, if it does
local function forget_as_of(key, n, c, stamp, trace)
  forget(key)
  if n == 0 then return end
  local past = recall(key)
  advance(past, n, c, stamp)
  past.traces[#past.traces + 1] = trace
  remember(key, past)
end

-- Begins a lapse, or keeps it behind the one that there is.
-- flags: 1 recovered, 2 its deadline was known, 4 heard without an anchor, 8 by policy
local function lapse(key, id, deadline, flags, copy)
  local record = '\1' .. id .. struct.pack('>I8', math.min(deadline, now)) .. char(flags) .. copy
  local present = redis.call('HGET', rec, key)
  if not present then
    redis.call('HDEL', run, key)
    return install(key, record, now, 0)
  end
  local count, latest = kept_record(redis.call('HGET', nxt, key) or '')
  -- A repeat of an unanswered call.
  if sub(present, 2, 9) == id or sub(latest, 2, 9) == id then return end
  redis.call('HSET', nxt, key, 'L' .. struct.pack('>I4', count + 1) .. record)
end

-- A retry whose key may have been written back: until when, or nil; and whether it still waits. Then it
-- is superseded where the key's writer comes first.
local function written_back(key)
  if not restores then return end
  local state = redis.call('HGET', run, key)
  if not state or #state < 25 then return end
  local attempt, at = struct.unpack('>I4', state, 11), struct.unpack('>I8', state, 18)
  if attempt > 1 and at > 0 then return at, byte(state, 2) ~= 1 end
end
