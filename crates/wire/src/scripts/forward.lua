-- forward.lua: Add a message to a list or a stream, once.
--
-- Purpose: A handler passes a timer to workers that read a list or a stream. A second attempt of the timer does not add the
--   message again, because a key with the message's ID remembers the first.
-- Parts: (none)
-- Flags: (none)
-- KEYS 1 the list or stream, 2 the key that remembers the ID
-- ARGV 1 'list' or 'stream', 2 its maximum length (0: any length), 3 for how long the ID is remembered in ms, 4 the ID,
--   5 the message: a list's new first member; in a stream an entry of two fields, id and message
-- Returns: 1 it was added, 0 it was added before, 2 there is no room
-- Invariants: Both keys are in one slot of a cluster, and the first belongs to another program. The ID is remembered if and
--   only if the message was added: a script that ends with an error, such as a value of another type, has written nothing.

if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end

local max_length, added = tonumber(ARGV[2]), nil
if ARGV[1] == 'list' then
  if redis.call('LLEN', KEYS[1]) >= max_length and max_length > 0 then return 2 end
  -- SET comes first, because it may be refused: the time may be invalid, or the user may lack the right.
  redis.call('SET', KEYS[2], '1', 'PX', ARGV[3])
  added = redis.pcall('LPUSH', KEYS[1], ARGV[5])
else
  if redis.call('XLEN', KEYS[1]) >= max_length and max_length > 0 then return 2 end
  redis.call('SET', KEYS[2], '1', 'PX', ARGV[3])
  added = redis.pcall('XADD', KEYS[1], '*', 'id', ARGV[4], 'message', ARGV[5])
end
if type(added) == 'table' and added.err then
  redis.call('DEL', KEYS[2])
  return added
end
return 1
