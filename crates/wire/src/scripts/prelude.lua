-- prelude.lua: what every partition script begins with.
--
-- Purpose: refuse callers that disagree with the partition's meta, and read the
--   clock once. What is needed once in many calls stands in other parts: a script
--   makes each function anew at each call, and an arm is to cost what a ZADD costs.
-- KEYS 1 meta
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel
-- Errors: NOMETA, DESTROYING, REPARTITIONING, WIREVERSION, PARTITIONS (nothing was written)

local meta = redis.call('HMGET', KEYS[1], 'v', 'partitions', 'paused', 'kind', 'watched_until', 'journal')
if meta[1] ~= ARGV[1] then
  if not meta[1] then return redis.error_reply('NOMETA ' .. KEYS[1] .. ' does not exist') end
  if meta[1] == 'destroying' then
    return redis.error_reply('DESTROYING ' .. KEYS[1] .. ' is of a topic that is being destroyed')
  end
  if meta[1] == 'repartitioning' then
    return redis.error_reply('REPARTITIONING ' .. KEYS[1] .. ' is of a topic that gets another number of partitions')
  end
  return redis.error_reply('WIREVERSION ' .. KEYS[1] .. ' says ' .. meta[1] .. ', the caller ' .. ARGV[1])
end
if meta[2] ~= ARGV[2] then
  return redis.error_reply('PARTITIONS ' .. KEYS[1] .. ' says ' .. meta[2] .. ', the caller ' .. ARGV[2])
end

-- `now` is the millisecond that has begun. A deadline computed from it uses
-- `ceil`, or it could be reached a fraction of a millisecond too early.
local time = redis.call('TIME')
local secs, micros = tonumber(time[1]), tonumber(time[2])
local now = secs * 1000 + math.floor(micros / 1000)
local ceil = micros % 1000 > 0 and now + 1 or now

-- Deadlines lie below 2^43 ms, in 2248: beyond it a score has no room for the
-- fraction that orders a millisecond.
local MAX_DEADLINE = 8796093022208
-- A timer with this many lost leases waits in `quarantine` to run in a group, which
-- is smaller after each further one. The last of them is lost alone: a dead letter.
local QUARANTINE_AT, DEAD_AT = 2, 5
-- What a state says behind its token of a timer whose first attempt has not ended: attempt, lost leases, snoozes, and that
-- the deadline is the record's.
local UNTRIED = '\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0'
local byte, sub, char = string.byte, string.sub, string.char

-- A deadline as callers give it, '+ms' from now or ms since 1970: never earlier
-- than asked for, and nil beyond the limit. Then the same as text: a number is written
-- out anew wherever it is an argument, which costs as much as a small command.
local last_when, last_at, last_text
local function deadline_of(when)
  local at = tonumber(when) or MAX_DEADLINE
  if at >= ceil and at < MAX_DEADLINE and string.find(when, '^[1-9][0-9]*$') then return at, when end
  -- Many have the same delay.
  if when ~= last_when then
    at = math.ceil(at)
    if byte(when) == 43 then at = ceil + at elseif at < ceil then at = ceil end
    if not (at < MAX_DEADLINE) then return end
    last_when, last_at, last_text = when, at, string.format('%.0f', at)
  end
  return last_at, last_text
end

-- Last of all, and under pcall: a caller without the right to publish has
-- done its work all the same, and says why nobody was told.
local wake_up_error = ''
local function publish(message)
  local answer = redis.pcall('SPUBLISH', ARGV[3], message)
  if type(answer) == 'table' and answer.err then wake_up_error = answer.err end
end
