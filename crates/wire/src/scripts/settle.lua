-- settle.lua: End attempts whose timers wait again or become dead letters.
--
-- Purpose: A claimed timer becomes a waiting timer again (retry, snooze, again, release) or a dead letter. An arming that is
--   queued behind it takes its place after a retry, an again or a dead letter (queued -> waiting); expiry cycles do not
--   replace a retry. A call has at most 1,000 timers.
-- Parts: prelude, timers, tail_journal, markers, queued_timers, dead_letters
-- Flags: allow-oom
-- KEYS 1 meta, 2 due, 3 quarantine, 4 timers, 5 timer_states, 6 queued, 7 tombstones, 8 dead, 9 dead_letters, 10 tried
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel,
--   4 dead letters kept, 5 their age in ms, 6 'trim' or 'pause' when full, 7 '1' to set marker keys, else '0',
--   then per timer: what, key, token, delay in ms, body
--   what: 'retry' and 'snooze' with the body attempt (4 bytes), snoozes (2), history; 'again' with the body new arming ID (8
--   bytes); 'dead' with the body reason (1 byte), history; 'release' with an empty body
-- Returns: secs, micros, how many marker keys were not set because another program uses the name, why some were refused (or
--   ''), then per timer: code, deadline, arming ID; then dead letters trimmed
--   codes: 0 gone (the token holds nothing any more), 1 done (deadline: the next one, or 0), 2 the queued arming took the
--   timer's place
-- Errors: those of the prelude, BADEND (nothing was written)
-- Invariants: A timer is settled only with the token that holds it; a lease that has ended still counts until the timer is
--   claimed again. An end that a live listener settles clears the lost leases; a release, which proves nothing about the
--   handler, keeps them. A repeat finds that the token holds nothing any more (0).

dead_cap, dead_age, dead_full = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local BASE, WIDTH = 7, 5

-- Each function writes or deletes the state, which has the token, last: if an earlier write is refused, a repeat still finds
-- the timer claimed and finishes the rest.
local ends = {}

function ends.snooze(key, record, state, delay, body)
  local at, attempt = now_rounded_up + delay, (struct.unpack('>I4', body))
  redis.call('ZREM', quarantine, key)
  index_timer(due, at, key)
  add_tried(key, record, at)
  redis.call('HSET', timer_states, key, '\1\0' .. NO_TOKEN .. sub(body, 1, 4) .. '\0' .. sub(body, 5, 6)
    .. struct.pack('>I8', at) .. sub(body, 7))
  return 1, at, sub(record, 2, 9), attempt
end

function ends.retry(key, record, state, delay, body)
  local queued_value = redis.call('HGET', queued, key)
  -- A retry gives way to a queued arming, but not to queued expiry cycles of an attached key: these wait until the timer has
  -- ended.
  if queued_value and byte(queued_value) ~= CYCLES then return 2, replace_with_queued(key, record) end
  return ends.snooze(key, record, state, delay, body)
end

function ends.again(key, record, state, delay, body)
  if redis.call('HEXISTS', queued, key) == 1 then return 2, replace_with_queued(key, record) end
  local at = now_rounded_up + delay
  add_tombstone('a' .. sub(record, 2, 9))
  redis.call('ZREM', quarantine, key)
  if is_tried(state) then remove_tried(key) end
  install_timer(key, sub(record, 1, 1) .. body .. struct.pack('>I8', at) .. sub(record, 18), at, 0)
  redis.call('HDEL', timer_states, key)
  return 1, at, body
end

function ends.dead(key, record, state, delay, body)
  local last = '\1\0' .. NO_TOKEN .. sub(state, 11, 25) .. sub(body, 2)
  local at, id = move_to_dead_letters(key, record, last, byte(body), 0)
  if at then return 2, at, id end
  return 1, 0, ''
end

function ends.release(key, record, state)
  return 1, release_timer(key, record, state), sub(record, 2, 9)
end

-- The bytes of attempts that ended without their timers. A dead letter is logged where it is added.
local TAIL_CODES = { retry = 'T', snooze = 'Z', release = 'H' }
local function log_outcome(what, key, record, state, code, at, body)
  if what == 'dead' then return end
  if code == 2 then
    log_timer_end(what == 'again' and 'D' or 'G', key, record, state, at)
  elseif what == 'again' then
    log_timer_end('A', key, record, state, at)
  else
    log_attempt_end(TAIL_CODES[what], key, record, what == 'release' and sub(state, 11, 14) or sub(body, 1, 4), at)
  end
end

for base = BASE, #ARGV - 1, WIDTH do
  if not ends[ARGV[base + 1]] then
    return redis.error_reply('BADEND ' .. ARGV[base + 1] .. ' is not an end of an attempt')
  end
end

local out, markers_taken = { secs, micros, 0, '' }, 0
for base = BASE, #ARGV - 1, WIDTH do
  local what, key, token = ARGV[base + 1], ARGV[base + 2], ARGV[base + 3]
  local state, record = redis.call('HGET', timer_states, key), redis.call('HGET', timers, key)
  local code, at, id, attempt = 0, 0, '', nil
  if state and record and #state >= 25 and sub(state, 3, 10) == token then
    code, at, id, attempt = ends[what](key, record, state, tonumber(ARGV[base + 4]), ARGV[base + 5])
    if LOGGED then log_outcome(what, key, record, state, code, at, ARGV[base + 5]) end
    -- A released timer is claimed again immediately, or its marker key still exists.
    if ARGV[7] == '1' and at > 0 and what ~= 'release' then
      if set_marker(key, string.format('%.0f', at), attempt or 1, false) == TAKEN then markers_taken = markers_taken + 1 end
    end
  end
  local n = #out
  out[n + 1], out[n + 2], out[n + 3] = code, at, id
end
out[3], out[4], out[#out + 1] = markers_taken, refused, trimmed
publish_wake_ups()
if LOGGED then flush_log() end
return out
