-- timers.lua: what records and states say, and how a timer is put into an index.
--
-- Purpose: read a timer's deadline, make its first state, put it into an index, and say so to the
--   listeners where that is sooner than all that was there; and name what was tried.
-- KEYS 1 meta, and tried, which is named as meta is but for the end
-- ARGV 3 wake-up channel

local NO_TOKEN = '\0\0\0\0\0\0\0\0'

-- Whether a record is of a version that is known: 1, or 129 where it says before its payload where a trace stands.
local function known(record)
  local version = byte(record)
  return version == 1 or version == 129
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
  return redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2]
end

-- What this call puts ahead of an index's head is announced: the score, by the letter of the index's message.
local heads, news = {}, {}
local function announce_if_earliest(zset, score)
  local head = heads[zset] or tonumber(head_of(zset)) or math.huge
  heads[zset] = math.min(head, score)
  -- Within one millisecond nobody has to come sooner.
  if math.floor(score) < math.floor(head) then news[sub(zset, -4) == ':due' and 'w' or 'q'] = score end
end

-- Puts a timer into an index, or moves it there.
local function index_timer(zset, at, key)
  announce_if_earliest(zset, at)
  redis.call('ZADD', zset, at, key)
end

-- A timer whose first attempt has ended, but not well, stands in `tried` until it ends: behind '<' at minus its first
-- deadline, behind '>' where its index has it. So it can be counted how many should have ended by now, without reading
-- them; and timers that end at their first attempt cost nothing.
local tried = sub(KEYS[1], 1, -5) .. 'tried'
local function is_tried(state) return sub(state, 11) ~= UNTRIED end
local function add_tried(key, record, at)
  local first = #record >= 17 and struct.unpack('>I8', record, 10) or now
  redis.call('ZADD', tried, -first, '<' .. key, at, '>' .. key)
end
local function move_tried(key, at) redis.call('ZADD', tried, 'XX', at, '>' .. key) end
local function remove_tried(key) redis.call('ZREM', tried, '<' .. key, '>' .. key) end

local function announce(letter)
  if news[letter] then publish(letter .. string.format('%.0f', math.floor(news[letter]))) end
end

-- In one order on every server: that of a table's keys is not.
local function publish_wake_ups()
  announce('w')
  announce('q')
end

-- What an answer says behind its last timer, if anything: why listeners could not be told, and why trigger keys were refused.
local function error_suffix(refused)
  return (wake_up_error ~= '' or refused ~= '') and wake_up_error .. '\n' .. refused or ''
end
