-- record_expiries.lua: Turn expiry events of attached keys into lapses.
--
-- Purpose: All listeners of an attached topic report the expiry events that they receive; the first report of an expiry
--   makes a lapse, and the others are answered 0. A key that was tracked on the same server becomes untracked. Its lapse is
--   a waiting timer that is due now; if an earlier lapse of the key still waits or runs, the new one is queued behind it. A
--   call has at most 1,000 expiries.
-- Parts: prelude, timers, queued_timers, expiry_history
-- Flags: allow-oom
-- KEYS 1 meta, 2 due, 3 quarantine, 4 timers, 5 timer_states, 6 queued, 7 tombstones, 8 expiry_history,
--   9 expiry_history_old, 10 checks, 11 tracked, 12 values, 13 tried
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 the highest number of a heartbeat key below, 5 '1' if keys are written back for their retries; else '0',
--   6 the server of all positions in the call ('' if there is only one server),
--   7 'fire' or 'ignore', for keys whose deadline is not known,
--   then per expiry: key; three numbers; '', or the absence of the key; arming ID; with a named server: when the key was
--   requested, in ms of this partition's clock (0: it was not)
--   the three numbers, if the listener has received everything since a heartbeat key: number of the last heartbeat key;
--   count of the key's expiries since; number of the former heartbeat key, the listener's anchor
--   if it was received in a gap: number of the heartbeat key after the gap (0: there is none); count back from there; 0
--   if a replaced server has announced it: 0; 1; 0
--   the absence, if the key was found gone after a gap: where and when, as position (12 bytes) and time in µs (8); of a
--   replaced server: where and when its successor found the key gone, and the name of the replaced server
-- Returns: secs, micros, then per expiry: 0 recorded before (of a replaced server also: an expiry or a reading on its
--   successor decides), 1 a lapse, 2 a recovery has fired it before, 3 ignored, 4 stale (older than the history), 5 the key
--   was written back for a retry, which this does not change, 6 a lapse, in place of such a retry
-- Invariants: One identity makes one lapse, whichever listener reports it, and however often. An expiry that was received in
--   a gap makes one more lapse at most, however many listeners have received it there.

local fires = ARGV[7] == 'fire'
local BASE, WIDTH = 7, node == '' and 6 or 7

-- Returns whether a trace covers an expiry of this call's server. A trace of two servers covers all that the first announced
-- after its start, up to the end of that stream if it is known. It also covers all that the second announced up to its end.
local function covers(trace, n, c)
  local after_start = is_before(trace[1], trace[2], n, c)
  local before_end = not is_before(trace[3], trace[4], n, c)
  if trace.from_node == trace.to_node then return after_start and before_end and (trace.from_node or node) == node end
  local before_known_end = trace[5] == 0 or not is_before(trace[5], trace[6], n, c)
  return trace.to_node == node and before_end or trace.from_node == node and after_start and before_known_end
end

-- Returns whether a recovery has fired this expiry before. Each trace stands for one expiry, and is then deleted.
local function was_recovered(past, n, c)
  for i, trace in ipairs(past.traces) do
    if covers(trace, n, c) then
      table.remove(past.traces, i)
      return true
    end
  end
end

-- Adds an expiry to the recorded ranges. Returns whether it was in none. A listener records all expiries since its anchor in
-- order. A report therefore covers the range from the anchor to its expiry, which is merged with the ranges that it meets.
local function is_new(past, since, n, c)
  local first, lower, higher = since, {}, {}
  for _, range in ipairs(past.recorded) do
    if range[1] > n then
      higher[#higher + 1] = range
    elseif not is_before(range[2], range[3], n, c) then
      return false
    elseif range[2] < since then
      lower[#lower + 1] = range
    else
      first = math.min(first, range[1])
    end
  end
  lower[#lower + 1] = { first, n, c }
  for _, range in ipairs(higher) do lower[#lower + 1] = range end
  past.recorded = lower
  return true
end

-- A deadline is by the clock of the key's server, which may differ from this partition's. Heartbeat keys are numbered by the
-- same clock, and the next one comes within NEXT_WITHIN ms. A deadline after that was not reached yet, and the event is
-- forged. `announced_at` is the latest possible time of the event, by the clock of its server.
local NEXT_WITHIN = 2000
local function is_due(seen, announced_at)
  return seen.deadline <= now or node ~= '' and seen.deadline <= announced_at
end

-- The key is tracked by a reading on another server, whose expiry cycle may or may not have ended. The key stays tracked
-- until a check ends it. Deadline and value of that reading are used once, if the deadline has passed.
local function start_lapse_of_other_server(key, id, seen, flags, announced_at)
  seen.announced_elsewhere = math.min(seen.announced_elsewhere + 1, 255)
  write_tracked(key, seen)
  local is_known = seen.announced_elsewhere == 1 and is_due(seen, announced_at)
  if not is_known and not fires then return 3 end
  add_lapse(key, id, is_known and seen.deadline or now, is_known and flags + KNOWN or flags,
    is_known and value_of(key, seen) or '')
  return 1
end

-- Adds the lapse of an expiry, and returns the code. `seen` is the entry of the tracked key, if its reading is earlier than
-- this expiry.
local function start_lapse(key, id, seen, flags, announced_at)
  local written_until, waits = write_back_deadline(key)
  local code = 1
  if waits and (seen or now < written_until) then
    replace_with_queued(key)
    code = 6
  end
  if seen and seen.node ~= node then
    local other_code = start_lapse_of_other_server(key, id, seen, flags, announced_at)
    return other_code == 1 and code or other_code
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

-- Returns whether the expiry is that of a key that was written back. Each of these is announced once, at or after its
-- deadline. By then its retry waits, runs, or has ended. An event that is still to come is expected for OWED_FOR ms.
local OWED_FOR = 10000
local function is_write_back_expiry(key, past)
  if past.events_owed > 0 and now < past.reported_deadline + OWED_FOR then
    past.events_owed = past.events_owed - 1
    return true
  end
  local written_until = write_back_deadline(key)
  if written_until and now >= written_until and past.unreported_deadline ~= written_until then
    past.unreported_deadline = written_until
    return true
  end
end

local function tracked_of(key)
  local bytes = redis.call('HGET', tracked, key)
  return bytes and read_tracked(bytes)
end

-- All listeners that receive an expiry in a gap receive the same next heartbeat key and all expiries between the two. They
-- agree on the count back from there, and a listener that reports one expiry has reported those after it. Returns whether
-- this is the first report.
local function is_first(past, heartbeat, count_back)
  local insert_at = #past.gaps + 1
  for i, gap in ipairs(past.gaps) do
    if gap[1] == heartbeat then
      local first = count_back > gap[2]
      if first then gap[2] = count_back end
      return first
    end
    if gap[1] > heartbeat and insert_at > i then insert_at = i end
  end
  table.insert(past.gaps, insert_at, { heartbeat, count_back })
  return true
end

-- A replaced server has announced the expiry, and its successor finds the key gone: the event may have been true. An expiry
-- or a reading on the successor, if there is any, decides instead.
local function record_replaced_server_expiry(key, past, absence, id)
  local at_n, at_c = struct.unpack('>I8I4', absence)
  local is_decided = #past.recorded > 0 or #past.gaps > 0 or redis.call('HEXISTS', tracked, key) == 1
  for _, trace in ipairs(past.traces) do is_decided = is_decided or (trace.to_node or node) == node end
  if is_decided then return 0 end
  if not fires then return 3 end
  past.traces[#past.traces + 1] = { 0, 0, at_n, at_c, from_node = sub(absence, 21), to_node = node }
  add_lapse(key, id, now, AMBIGUOUS, '')
  save_history(key, past)
  return 1
end

-- A reading from before the key was found gone is of an expiry cycle that has ended.
local function record_gap_expiry(key, past, heartbeat, count_back, absence, id, requested_at)
  if heartbeat == 0 and count_back == 1 then return record_replaced_server_expiry(key, past, absence, id) end
  if heartbeat > floor and not is_first(past, heartbeat, count_back) then return 0 end
  local seen, code = (absence ~= '' or node ~= '') and tracked_of(key) or nil, nil
  local announced_at = heartbeat
  if absence ~= '' then
    local at = { n = 0, c = 0, stamp = 0 }
    at.n, at.c, at.stamp = struct.unpack('>I8I4I8', absence)
    announced_at = math.max(announced_at, at.stamp / 1000)
    if seen and seen.node == node and not is_earlier(seen.n, seen.c, seen.stamp, at) then seen = nil end
    -- Nothing was written about the key since this request: the reading on the other server is earlier.
    if seen and seen.node ~= node and not is_overtaken(past, seen, requested_at) then seen.node = node end
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
  if heartbeat > 0 or code == 5 then save_history(key, past) end
  return code
end

local function record_expiry(key, n, c, since, absence, id, requested_at)
  local past = load_history(key)
  if since == 0 then return record_gap_expiry(key, past, n, c, absence, id, requested_at) end
  if n <= floor then return 4 end
  if not is_new(past, since, n, c) then return 0 end
  local recovered, seen = was_recovered(past, n, c), tracked_of(key)
  advance(past, n, c, 0)
  local elsewhere = seen and seen.node ~= node
  -- A reading after this expiry is of the key's next cycle. Without 'fire', an expiry before the known deadline is ignored,
  -- because any client can publish an event.
  if seen and not elsewhere and not is_before(seen.n, seen.c, n, c) then seen = nil end
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
