-- timers.lua: Read records and states, and put timers into an index.
--
-- Purpose: This part reads the deadline of a timer, creates the state of a waiting timer, and adds timers to `due`,
--   `quarantine` and `tried`. It publishes a wake-up if a timer is now the earliest of its index, because listeners sleep
--   until the earliest deadline that they have read.
-- KEYS 1 meta, and tried, whose name is that of meta with another last word
-- ARGV 3 wake-up channel

local NO_TOKEN = '\0\0\0\0\0\0\0\0'

-- Returns whether this release can read the record: version 1, or 129 with a trace context before the payload.
local function is_readable(record)
  local version = byte(record)
  return version == 1 or version == 129
end

-- Returns the present deadline: that of the state if it has one, else that of the record, else 0.
local function present_deadline(record, state)
  local at = state and #state >= 25 and struct.unpack('>I8', state, 18) or 0
  if at == 0 and #record >= 17 then at = struct.unpack('>I8', record, 10) end
  return at
end

-- Returns the state of a waiting first attempt with this many lost leases.
local function fresh_state(lost)
  return '\1\0' .. NO_TOKEN .. '\0\0\0\1' .. char(lost) .. '\0\0' .. NO_TOKEN
end

-- Returns the lowest score of an index as text, or nil if the index is empty.
local function head_of(zset)
  return redis.call('ZRANGE', zset, '0', '0', 'WITHSCORES')[2]
end

-- `heads` has the earliest score of each index during this call. `to_announce` has the scores to announce, by the first
-- letter of the message: 'w' for `due`, 'q' for `quarantine`.
local heads, to_announce = {}, {}
local function announce_if_earliest(zset, score)
  local head = heads[zset] or tonumber(head_of(zset)) or math.huge
  heads[zset] = math.min(head, score)
  -- A listener need not wake earlier within the same millisecond.
  if math.floor(score) < math.floor(head) then to_announce[sub(zset, -4) == ':due' and 'w' or 'q'] = score end
end

-- Adds a timer to an index, or changes its score there.
local function index_timer(zset, at, key)
  announce_if_earliest(zset, at)
  redis.call('ZADD', zset, at, key)
end

-- A timer whose first attempt ended without success is in `tried` until it ends. It has two members: '<' and its key at
-- minus its first deadline, '>' and its key at its score in the index. From these, ZCOUNT finds how many timers should have
-- ended by now, and no timer is read. A timer that ends at its first attempt is never added.
local tried = sub(KEYS[1], 1, -5) .. 'tried'
local function is_tried(state) return sub(state, 11) ~= UNTRIED end
local function add_tried(key, record, at)
  local first = #record >= 17 and struct.unpack('>I8', record, 10) or now
  redis.call('ZADD', tried, -first, '<' .. key, at, '>' .. key)
end
local function move_tried(key, at) redis.call('ZADD', tried, 'XX', at, '>' .. key) end
local function remove_tried(key) redis.call('ZREM', tried, '<' .. key, '>' .. key) end

local function announce(prefix)
  if to_announce[prefix] then publish(prefix .. string.format('%.0f', math.floor(to_announce[prefix]))) end
end

-- The order is fixed, because the order of the keys of a table differs between servers.
local function publish_wake_ups()
  announce('w')
  announce('q')
end

-- Returns the suffix of an answer: why listeners could not be notified, a line break, and why marker keys were refused; or
-- '' if neither happened.
local function error_suffix(refused)
  return (wake_up_error ~= '' or refused ~= '') and wake_up_error .. '\n' .. refused or ''
end
