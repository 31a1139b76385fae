-- markers.lua: Set, move and delete marker keys.
--
-- Purpose: A marker key has the name of a timer and expires at its deadline, so that other programs can see the timer and
--   its expiry. This part changes marker keys only, never values of other programs; no state of a timer depends on them.
-- KEYS (the marker keys; a script that runs where partition and marker keys share a server does not declare them)
-- Invariants: Values of other programs are never changed. A key counts as a marker key if its value is a whole number from 1
--   to 9999 and its time of expiry fits: now, as that of the old marker key mostly is at a retry; or the deadline that is
--   set, as at a repeat; or any time, if the timer existed before. A caller without rights on a name has done the rest of
--   its work; the answer has the error.

-- Results for a marker key: none is set, it is set, another program uses the name, the caller lacks a right.
local NONE, SET, TAKEN, REFUSED = '\0', '\1', '\2', '\3'
local refused = ''

local function refusal(answer)
  if type(answer) == 'table' and answer.err then
    refused = answer.err
    return REFUSED
  end
end

-- GETRANGE, because a value of another program may be large for GET.
local function is_number(key)
  local start = redis.pcall('GETRANGE', key, '0', '4')
  return type(start) == 'string' and string.find(start, '^[1-9][0-9]?[0-9]?[0-9]?$') ~= nil
end

-- Returns the result. `deadline` is text, and `moved` is true if the timer existed before. If the deadline has passed, the
-- old marker key is deleted.
local function set_marker(key, deadline, attempt, moved)
  local at = tonumber(deadline)
  local expires = redis.pcall('PEXPIRETIME', key) -- -2: no such key
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

-- Deletes the marker key of a timer that has ended, if the key expires at that timer's deadline. Returns whether it did.
local function delete_marker(key, deadline)
  if redis.pcall('PEXPIRETIME', key) ~= deadline or not is_number(key) then return false end
  return redis.pcall('DEL', key) == 1
end
