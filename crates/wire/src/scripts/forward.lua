-- forward.lua: put something into a list or a stream, once.
--
-- Purpose: hand what has come due to workers that read a list or a stream, so
--   that an attempt that is made again puts nothing there twice.
-- Parts: (none)
-- Flags: (none)
-- KEYS 1 the list or stream, 2 what remembers the id
-- ARGV 1 'list' or 'stream', 2 how long it may become (0: any length), 3 for how
--   long the id is remembered in ms, 4 the id, 5 the message: a list's new first
--   member; in a stream an entry of two fields, id and message
-- Returns: 1 it is there now, 0 it was put there before, 2 there is no room
-- Invariants: both keys lie in one slot; the first is none of ours; the id is
--   remembered if and only if the message was put there, so a script that ends
--   with an error, a value of another type there for one, has written nothing

if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end

local room, put = tonumber(ARGV[2]), nil
if ARGV[1] == 'list' then
  if redis.call('LLEN', KEYS[1]) >= room and room > 0 then return 2 end
  -- First what can be refused: a time that is none, a user without the right.
  redis.call('SET', KEYS[2], '1', 'PX', ARGV[3])
  put = redis.pcall('LPUSH', KEYS[1], ARGV[5])
else
  if redis.call('XLEN', KEYS[1]) >= room and room > 0 then return 2 end
  redis.call('SET', KEYS[2], '1', 'PX', ARGV[3])
  put = redis.pcall('XADD', KEYS[1], '*', 'id', ARGV[4], 'message', ARGV[5])
end
if type(put) == 'table' and put.err then
  redis.call('DEL', KEYS[2])
  return put
end
return 1
