-- record_expiries.lua: expiries were heard.
--
-- Purpose: make a lapse of each expiry that nobody has noted before; at most 1,000 a call.
-- Parts: prelude, timers, queued_timers, expiry_history
-- Flags: allow-oom
-- KEYS 1 meta, 2 due, 3 quarantine, 4 timers, 5 timer_states, 6 queued, 7 tombstones, 8 expiry_history, 9 expiry_history_old, 10 checks, 11 tracked,
--   12 values, 13 tried
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 the highest number of a canary below, 5 '1' where keys are written back for their retries; else '0',
--   6 the name of the server of all positions in the call ('' where there is one),
--   7 'fire' or 'ignore': what becomes of keys whose deadline was not known,
--   then per expiry: key, number of the last canary, count since, number of the canary since which its
--   listener has heard everything; for one that was heard in a gap: number of the canary after it (0: there
--   is none), count back from there, 0; where and when the key was found gone behind that canary, as 20 bytes
--   of a watch's head ('': it was not), arming id; then, where the server has a name, when the key was asked for, in
--   ms of this partition's clock (0: it was not). One that a server has announced which was replaced: canary 0, count
--   1, 0; where and when this server said that the key is gone, as above, and the name of the one that was replaced
-- Returns: secs, micros, then per expiry: 0 known, 1 a lapse, 2 it was recovered before, 3 ignored,
--   4 stale (older than the history), 5 it ends a retry whose key was written back, 6 a lapse, in
--   place of such a retry
-- Invariants: an identity makes one lapse, whoever notes it, and however often. Heard in a gap, an expiry makes
--   one more at most, however many have heard it so.

local fires = ARGV[7] == 'fire'
local BASE, WIDTH = 7, node == '' and 6 or 7

-- Whether it reaches an expiry. Of two servers: whatever the first has announced after it, as far as that is known to
-- go, and whatever the second has before it.
local function reaches(trace, n, c)
  local after = before(trace[1], trace[2], n, c)
  local upto = not before(trace[3], trace[4], n, c)
  if trace.from == trace.upto then return after and upto and (trace.from or node) == node end
  local old = trace[5] == 0 or not before(trace[5], trace[6], n, c)
  return trace.upto == node and upto or trace.from == node and after and old
end

-- Whether one of the recoveries was this expiry; each is one expiry only.
local function was_recovered(past, n, c)
  for i, trace in ipairs(past.traces) do
    if reaches(trace, n, c) then
      table.remove(past.traces, i)
      return true
    end
  end
end

-- Whoever notes has noted all that it heard since its anchor, in order: so a note is one of a range, which
-- becomes one with those that it meets.
local function is_new(past, since, n, c)
  local from, earlier, later = since, {}, {}
  for _, range in ipairs(past.noted) do
    if range[1] > n then
      later[#later + 1] = range
    elseif not before(range[2], range[3], n, c) then
      return false
    elseif range[2] < since then
      earlier[#earlier + 1] = range
    else
      from = math.min(from, range[1])
    end
  end
  earlier[#earlier + 1] = { from, n, c }
  for _, range in ipairs(later) do earlier[#earlier + 1] = range end
  past.noted = earlier
  return true
end

-- A deadline is its own server's, whose clock need not be this partition's. Canaries are numbered by it, and the next
-- comes within two seconds: so what is announced behind one has ended by then, or it is forged.
-- heard: a time by the clock of the server that has announced it, at the latest
local NEXT_WITHIN = 2000
local function is_due(seen, announced_at)
  return seen.deadline <= now or node ~= '' and seen.deadline <= announced_at
end

-- What another server was asked for may have ended by this, or not: so it stays until the key is looked at, which
-- then ends it. What was remembered is taken along once, if its time has come.
local function record_other_server(key, id, seen, flags, announced_at)
  seen.answered = math.min(seen.answered + 1, 255)
  write_tracked(key, seen)
  local known = seen.answered == 1 and is_due(seen, announced_at)
  if not known and not fires then return 3 end
  add_lapse(key, id, known and seen.deadline or now, known and flags + KNOWN or flags, known and value_of(key, seen) or '')
  return 1
end

-- seen: what is remembered of its deadline, if that is older than this expiry
local function start_lapse(key, id, seen, flags, announced_at)
  local back, waits = write_back_deadline(key)
  local code = 1
  if waits and (seen or now < back) then
    replace_with_queued(key)
    code = 6
  end
  if seen and seen.node ~= node then
    local answered = record_other_server(key, id, seen, flags, announced_at)
    return answered == 1 and code or answered
  end
  if seen then
    local value = value_of(key, seen)
    untrack(key)
    add_lapse(key, id, seen.deadline, flags + KNOWN, value)
    return code
  end
  if not fires then return 3 end
  add_lapse(key, id, now, flags, '')
  return code
end

-- Whether this is the end of a key that was written back: each such key is announced once, at or after
-- the deadline that it was given; by then its retry waits, runs, or has ended.
local OWED = 10000
local function is_write_back_expiry(key, past)
  if past.owed > 0 and now < past.back + OWED then
    past.owed = past.owed - 1
    return true
  end
  local back = write_back_deadline(key)
  if back and now >= back and past.returned ~= back then
    past.returned = back
    return true
  end
end

local function tracked_of(key)
  local bytes = redis.call('HGET', tracked, key)
  return bytes and read_tracked(bytes)
end

-- All who heard an expiry in a gap hear the same canary next, and have heard the same since: so they agree on how
-- many of the key's expiries come from there back to it, and whoever names one has named those after it.
local function is_first(past, canary, back)
  local place = #past.gaps + 1
  for i, gap in ipairs(past.gaps) do
    if gap[1] == canary then
      local first = back > gap[2]
      if first then gap[2] = back end
      return first
    end
    if gap[1] > canary and place > i then place = i end
  end
  table.insert(past.gaps, place, { canary, back })
  return true
end

-- A server that was replaced has announced it, and its successor says that the key is gone: it may have been true
-- then. If anything is known of what the successor has announced, or remembered of the key, that decides.
local function record_replaced_server(key, past, gone, id)
  local at_n, at_c = struct.unpack('>I8I4', gone)
  local known = #past.noted > 0 or #past.gaps > 0 or redis.call('HEXISTS', tracked, key) == 1
  for _, trace in ipairs(past.traces) do known = known or (trace.upto or node) == node end
  if known then return 0 end
  if not fires then return 3 end
  past.traces[#past.traces + 1] = { 0, 0, at_n, at_c, from = sub(gone, 21), upto = node }
  add_lapse(key, id, now, AMBIGUOUS, '')
  save_history(key, past)
  return 1
end

-- What was read of a key before it was found gone was of a life that has ended.
local function record_gap_expiry(key, past, canary, back, gone, id, asked)
  if canary == 0 and back == 1 then return record_replaced_server(key, past, gone, id) end
  if canary > floor and not is_first(past, canary, back) then return 0 end
  local seen, code = (gone ~= '' or node ~= '') and tracked_of(key) or nil, nil
  local announced_at = canary
  if gone ~= '' then
    local at = { n = 0, c = 0, stamp = 0 }
    at.n, at.c, at.stamp = struct.unpack('>I8I4I8', gone)
    announced_at = math.max(announced_at, at.stamp / 1000)
    if seen and seen.node == node and not earlier(seen.n, seen.c, seen.stamp, at) then seen = nil end
    -- Nothing was written of it since it was asked for: so what was read before of another server is earlier.
    if seen and seen.node ~= node and not is_overtaken(past, seen, asked) then seen.node = node end
    advance(past, at.n, at.c, at.stamp)
  elseif seen and seen.node == node then
    seen = nil
  end
  if seen and not fires and not is_due(seen, announced_at) then
    code = 3
  elseif not seen and is_write_back_expiry(key, past) then
    code = 5
  else
    code = start_lapse(key, id, seen, AMBIGUOUS, announced_at)
  end
  if canary > 0 or code == 5 then save_history(key, past) end
  return code
end

local function record_expiry(key, n, c, since, gone, id, asked)
  local past = load_history(key)
  if since == 0 then return record_gap_expiry(key, past, n, c, gone, id, asked) end
  if n <= floor then return 4 end
  if not is_new(past, since, n, c) then return 0 end
  local recovered, seen = was_recovered(past, n, c), tracked_of(key)
  advance(past, n, c, 0)
  local elsewhere = seen and seen.node ~= node
  -- A reading that came after this expiry is of the key's next cycle. Where only what was read is to
  -- fire, a key that should still be there may have been announced by anybody.
  if seen and not elsewhere and not before(seen.n, seen.c, n, c) then seen = nil end
  local code, announced_at = 2, n + NEXT_WITHIN
  if seen and not elsewhere and not fires and not is_due(seen, announced_at) then
    code = 3
  elseif recovered then
    if seen and not elsewhere then untrack(key) end
  elseif not seen and is_write_back_expiry(key, past) then
    code = 5
  else
    code = start_lapse(key, id, seen, 0, announced_at)
  end
  save_history(key, past)
  return code
end

rotate_history(tonumber(ARGV[4]))
local out = { secs, micros }
for base = BASE, #ARGV - 1, WIDTH do
  out[#out + 1] = record_expiry(ARGV[base + 1], tonumber(ARGV[base + 2]), tonumber(ARGV[base + 3]),
    tonumber(ARGV[base + 4]), ARGV[base + 5], ARGV[base + 6], WIDTH > 6 and tonumber(ARGV[base + 7]) or 0)
end
publish_wake_ups()
return out
