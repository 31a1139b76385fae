-- prelude.lua: what every partition script begins with.
--
-- Purpose: refuse callers that disagree with the partition's meta, read the
--   clock once, and hold the helpers that more than one script needs.
-- KEYS 1 meta
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel
-- Errors: NOMETA, DESTROYING, WIREVERSION, PARTITIONS (nothing was written)

local meta = redis.call('HMGET', KEYS[1], 'v', 'p', 'paused', 'ms', 'n', 'kind')
if not meta[1] then return redis.error_reply('NOMETA ' .. KEYS[1] .. ' does not exist') end
if meta[1] ~= ARGV[1] then
  if meta[1] == 'destroying' then
    return redis.error_reply('DESTROYING ' .. KEYS[1] .. ' is of a topic that is being destroyed')
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

-- A timer with this many lost leases waits in `quarantine` to run in a group, which
-- is smaller after each further one. The last of them is lost alone: a dead letter.
local QUARANTINE_AT, DEAD_AT = 2, 5
local NO_TOKEN = '\0\0\0\0\0\0\0\0'
-- Deadlines lie below 2^43 ms, in 2248: beyond it a score has no room for the
-- fraction that orders a millisecond.
local MAX_DEADLINE = 8796093022208
local byte, sub, char = string.byte, string.sub, string.char

-- Whether a record is of a version that is known: 1, or 129 where it says before its payload where a trace stands.
local function known(record)
  local version = byte(record)
  return version == 1 or version == 129
end

-- A deadline as callers give it, '+ms' from now or ms since 1970: never earlier
-- than asked for, and nil beyond the limit.
local function deadline_of(when)
  local at = math.ceil(tonumber(when) or MAX_DEADLINE)
  if byte(when) == 43 then at = ceil + at end
  if at < MAX_DEADLINE then return at < ceil and ceil or at end
end

-- The present deadline: the state's if it has one, else the record's, else 0.
local function present_deadline(record, state)
  local at = state and #state >= 25 and struct.unpack('>I8', state, 18) or 0
  if at == 0 and #record >= 17 then at = struct.unpack('>I8', record, 10) end
  return at
end

-- The state of a waiting first attempt, which carries nothing but lost leases.
local function fresh_state(lost)
  return '\1\0' .. NO_TOKEN .. '\0\0\0\1' .. char(lost) .. '\0\0' .. NO_TOKEN
end

local function head_of(zset)
  return redis.call('ZRANGE', zset, 0, 0, 'WITHSCORES')[2]
end

-- What this call puts ahead of an index's head is announced: the score, by the letter of the index's message.
local heads, news = {}, {}
local function sooner(zset, score)
  local head = heads[zset] or tonumber(head_of(zset)) or math.huge
  heads[zset] = math.min(head, score)
  if score < head then news[sub(zset, -4) == ':due' and 'w' or 'q'] = score end
end

-- Puts a timer into an index, or moves it there.
local function wait_until(zset, at, key)
  sooner(zset, at)
  redis.call('ZADD', zset, at, key)
end

-- Last of all, and under pcall: a caller without the right to publish has
-- done its work all the same, and says why nobody was told.
local untold = ''
local function tell(message)
  local answer = redis.pcall('SPUBLISH', ARGV[3], message)
  if type(answer) == 'table' and answer.err then untold = answer.err end
end

local function announce(letter)
  if news[letter] then tell(letter .. string.format('%.0f', math.floor(news[letter]))) end
end

-- In one order on every server: that of a table's keys is not.
local function wake()
  announce('w')
  announce('q')
end
