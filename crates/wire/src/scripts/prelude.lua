-- prelude.lua: Refuse callers that disagree with the partition, and read the clock once.
--
-- Purpose: The scripts of an open partition begin with this part: it compares the caller's wire version and number of
--   partitions with `meta`. It refuses a partition that is absent or closed (destroying, repartitioning); an open one may be
--   paused.
-- KEYS 1 meta
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel
-- Errors: NOMETA, DESTROYING, REPARTITIONING, WIREVERSION, PARTITIONS (nothing was written)
-- Invariants: A script creates its functions at each call, and an arm should cost about as much as a ZADD. Functions that
--   few scripts need are therefore in other parts.

local meta = redis.call('HMGET', KEYS[1], 'v', 'partitions', 'paused', 'kind', 'watched_until', 'journal')
if meta[1] ~= ARGV[1] then
  if not meta[1] then return redis.error_reply('NOMETA ' .. KEYS[1] .. ' does not exist') end
  if meta[1] == 'destroying' then
    return redis.error_reply('DESTROYING ' .. KEYS[1] .. ' belongs to a topic that is being destroyed')
  end
  if meta[1] == 'repartitioning' then
    return redis.error_reply('REPARTITIONING ' .. KEYS[1] .. ' belongs to a topic that gets another number of partitions')
  end
  return redis.error_reply('WIREVERSION ' .. KEYS[1] .. ' has wire version ' .. meta[1] .. ', the caller ' .. ARGV[1])
end
if meta[2] ~= ARGV[2] then
  return redis.error_reply('PARTITIONS ' .. KEYS[1] .. ' has ' .. meta[2] .. ' partitions, the caller ' .. ARGV[2])
end

-- `now` is rounded down to a millisecond. Deadlines are computed from `now_rounded_up`: otherwise a timer could run a
-- fraction of a millisecond early.
local time = redis.call('TIME')
local secs, micros = tonumber(time[1]), tonumber(time[2])
local now = secs * 1000 + math.floor(micros / 1000)
local now_rounded_up = micros % 1000 > 0 and now + 1 or now

-- Deadlines are below 2^43 ms, in 2248. Above that, a score has too few bits left for the fraction that orders timers within
-- one millisecond.
local MAX_DEADLINE = 8796093022208
-- A timer with QUARANTINE_AT lost leases moves to `quarantine`, where it runs in a group. The group is smaller after each
-- further lost lease; the last attempt runs alone. At DEAD_AT lost leases the timer becomes a dead letter.
local QUARANTINE_AT, DEAD_AT = 2, 5
-- The bytes behind the token in the state of a timer whose first attempt has not ended: attempt 1, no lost leases, no
-- snoozes. The record has the deadline, therefore it is 0 here.
local UNTRIED = '\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0'
local byte, sub, char = string.byte, string.sub, string.char

-- Returns a deadline as a number and as text, or nil if `when` is no number or beyond the limit. `when` is '+ms' from now or
-- ms since 1970; the result is never earlier than requested. Callers pass the text to commands, because Lua formats a number
-- again for each command, which costs as much as a small command.
local last_when, last_at, last_text
local function deadline_of(when)
  local at = tonumber(when) or MAX_DEADLINE
  if at >= now_rounded_up and at < MAX_DEADLINE and string.find(when, '^[1-9][0-9]*$') then return at, when end
  -- Timers of one call often have the same delay.
  if when ~= last_when then
    at = math.ceil(at)
    if byte(when) == 43 then at = now_rounded_up + at elseif at < now_rounded_up then at = now_rounded_up end
    if not (at < MAX_DEADLINE) then return end
    last_when, last_at, last_text = when, at, string.format('%.0f', at)
  end
  return last_at, last_text
end

-- Called after all writes, under pcall: a caller without the right to publish has done its work. The answer then has the
-- error.
local wake_up_error = ''
local function publish(message)
  local answer = redis.pcall('SPUBLISH', ARGV[3], message)
  if type(answer) == 'table' and answer.err then wake_up_error = answer.err end
end
