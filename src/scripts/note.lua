-- note.lua: expiries were heard.
--
-- Purpose: make a lapse of each expiry that nobody has noted before; at most 1,000 a call.
-- Parts: prelude, succession, history
-- Flags: allow-oom
-- KEYS 1 meta, 2 due, 3 quarantine, 4 rec, 5 run, 6 next, 7 tombstones, 8 history, 9 history_old, 10 checks, 11 watch
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 the highest number of a canary below, 5 '1' where keys are written back for their retries; else '0',
--   6 'fire' or 'ignore': what becomes of keys whose deadline was not known,
--   then per expiry: key, number of the last canary, count since (0 and 0: heard without an anchor),
--   arming id
-- Returns: secs, micros, then per expiry: 0 known, 1 a lapse, 2 it was recovered before, 3 ignored,
--   4 stale (older than the history), 5 it ends a retry whose key was written back, 6 a lapse, in
--   place of such a retry
-- Invariants: an identity makes one lapse, whoever notes it, and however often.

local fires = ARGV[6] == 'fire'
local BASE, WIDTH = 6, 4

-- Whether one of the recoveries was this expiry; each is one expiry only.
local function was_recovered(past, n, c)
  for i, trace in ipairs(past.traces) do
    if before(trace[1], trace[2], n, c) and not before(trace[3], trace[4], n, c) then
      table.remove(past.traces, i)
      return true
    end
  end
end

local function is_new(past, n, c)
  for _, one in ipairs(past.noted) do
    if one[1] == n then
      if c <= one[2] then return false end
      one[2] = c
      return true
    end
  end
  past.noted[#past.noted + 1] = { n, c }
  return true
end

-- seen: what is remembered of its deadline, if that is older than this expiry
local function begin(key, id, seen, flags)
  local back, waits = written_back(key)
  local code = 1
  if waits and (seen or now < back) then
    supersede(key)
    code = 6
  end
  if seen then
    forget(key)
    lapse(key, id, seen.deadline, flags + 2, seen.copy)
    return code
  end
  if not fires then return 3 end
  lapse(key, id, now, flags, '\0')
  return code
end

-- Whether this is the end of a key that was written back: each such key is announced once, at or after
-- the deadline that it was given; by then its retry waits, runs, or has ended.
local OWED = 10000
local function is_return(key, past)
  if past.owed > 0 and now < past.back + OWED then
    past.owed = past.owed - 1
    return true
  end
  local back = written_back(key)
  if back and now >= back and past.returned ~= back then
    past.returned = back
    return true
  end
end

local function note(key, n, c, id)
  local bytes = redis.call('HGET', watch, key)
  local seen = bytes and read_watch(bytes)
  local past = recall(key)
  if n == 0 then
    if seen and seen.deadline > now then seen = nil end
    if not seen and is_return(key, past) then
      remember(key, past)
      return 5
    end
    return begin(key, id, seen, 4)
  end
  if n <= floor then return 4 end
  if not is_new(past, n, c) then return 0 end
  local recovered = was_recovered(past, n, c)
  advance(past, n, c, 0)
  -- A reading that came after this expiry is of the key's next cycle. Where only what was read is to
  -- fire, a key that should still be there may have been announced by anybody.
  if seen and not before(seen.n, seen.c, n, c) then seen = nil end
  local code = 2
  if seen and not fires and seen.deadline > now then
    code = 3
  elseif recovered then
    if seen then forget(key) end
  elseif not seen and is_return(key, past) then
    code = 5
  else
    code = begin(key, id, seen, 0)
  end
  remember(key, past)
  return code
end

turn_pages(tonumber(ARGV[4]))
local out = { secs, micros }
for base = BASE, #ARGV - 1, WIDTH do
  out[#out + 1] = note(ARGV[base + 1], tonumber(ARGV[base + 2]), tonumber(ARGV[base + 3]), ARGV[base + 4])
end
wake()
return out
