-- markers.lua: the keys that other programs can see and hear expire.
--
-- Purpose: set, move and delete trigger keys, and leave alone what others have written.
-- KEYS (those that are named: on a server that holds index and trigger keys alike they are not declared)
-- Invariants: what others have written is never touched. Ours are whole numbers
--   from 1 to 9999 that expire: now (at a retry the old key is mostly still in its
--   own last millisecond), or at the deadline that is set (a repeat), or
--   whenever, where the timer was there before. A caller without rights on a
--   name has done the rest of its work, and says why this was refused.

-- What became of a trigger key: there is none, it is set, others have the name, the caller may not.
local NONE, SET, TAKEN, REFUSED = '\0', '\1', '\2', '\3'
local refused = ''

local function refusal(answer)
  if type(answer) == 'table' and answer.err then
    refused = answer.err
    return REFUSED
  end
end

-- Not GET: what others keep there may be large.
local function is_number(key)
  local start = redis.pcall('GETRANGE', key, '0', '4')
  return type(start) == 'string' and string.find(start, '^[1-9][0-9]?[0-9]?[0-9]?$') ~= nil
end

-- deadline: as text
-- moved: whether the timer was there before
local function set_marker(key, deadline, attempt, moved)
  local at = tonumber(deadline)
  local expires = redis.pcall('PEXPIRETIME', key) -- -2: there is none
  if refusal(expires) then return REFUSED end
  local free = expires == -2
  local ours = expires >= 0 and (moved or expires <= now or expires == at)
  if not free and not (ours and is_number(key)) then return TAKEN end
  if at <= now then
    return not free and refusal(redis.pcall('DEL', key)) or NONE
  end
  local value = attempt == 1 and '1' or math.max(1, math.min(attempt, 9999))
  return refusal(redis.pcall('SET', key, value, 'PXAT', deadline)) or SET
end

-- Of a timer that is gone: whether its key, known by the deadline, was there.
local function delete_marker(key, deadline)
  if redis.pcall('PEXPIRETIME', key) ~= deadline or not is_number(key) then return false end
  return redis.pcall('DEL', key) == 1
end
