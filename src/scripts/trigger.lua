-- trigger.lua: set trigger keys.
--
-- Purpose: give timers the TTL keys that other programs can see and hear
--   expire. In a cluster one key a call; elsewhere up to 1,000.
-- Parts: (none)
-- Flags: (none)
-- KEYS the trigger keys
-- ARGV per key: deadline in ms since 1970; attempt to come, from 1 to 9999;
--   '1' if this moves the deadline of a timer that was there before (an arm
--   that was answered "replaced", a reschedule), else '0'
-- Returns: per key 1 set, 0 the name holds what others have written (nothing
--   was changed), 2 the deadline has passed (nothing was set)
-- Invariants: what others have written is never touched. Ours are whole numbers
--   from 1 to 9999 that expire: now (at a retry the old key is mostly still in its
--   own last millisecond), or at the deadline that is set (a repeat), or
--   whenever, where the timer was there before.

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

-- Not GET: what others keep there may be large.
local function is_number(key)
  return redis.call('TYPE', key).ok == 'string'
    and string.find(redis.call('GETRANGE', key, 0, 4), '^[1-9][0-9]?[0-9]?[0-9]?$') ~= nil
end

local function is_ours(key, expires, deadline, moved)
  if expires < 0 then return false end
  return (moved or expires <= now or expires == deadline) and is_number(key)
end

local out = {}
for i, key in ipairs(KEYS) do
  local at = 3 * (i - 1)
  local deadline = tonumber(ARGV[at + 1])
  local expires = redis.call('PEXPIRETIME', key) -- -2: there is none
  local free = expires == -2
  if not free and not is_ours(key, expires, deadline, ARGV[at + 3] == '1') then
    out[i] = 0
  elseif deadline <= now then
    if not free then redis.call('DEL', key) end
    out[i] = 2
  else
    redis.call('SET', key, ARGV[at + 2], 'PXAT', ARGV[at + 1])
    out[i] = 1
  end
end
return out
