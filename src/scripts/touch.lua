-- touch.lua: read keys that other programs write.
--
-- Purpose: deadlines, and copies of values up to a cap. Reading a key that has expired makes the
--   server say so. In a cluster one key a call; elsewhere up to 1,000.
-- Parts: (none)
-- Flags: no-writes
-- KEYS the keys
-- ARGV 1 the cap in bytes (0: no copies), 2 '1' to copy what is not a string, as DUMP writes it,
--   else '0'
-- Returns: secs, micros, then per key: deadline in ms (-1: it has none, -2: there is no such key), copy
--   a copy: '' where none was asked for; else a byte: 1 too large (and its size, where it is known),
--   2 a string (and its bytes), 3 another type (and its dump), 4 of a type that is not copied
-- Invariants: nothing is written.

local time = redis.call('TIME')
local cap, dumps = tonumber(ARGV[1]), ARGV[2] == '1'
local SIZES = { hash = 'HLEN', list = 'LLEN', set = 'SCARD', zset = 'ZCARD', stream = 'XLEN' }

-- A dump has at least two bytes for an element, and is not begun where that alone is too much.
local function dump_of(key, kind)
  local count = redis.call(SIZES[kind], key)
  if count * 2 > cap then return '\1' end
  local dump = redis.call('DUMP', key)
  if not dump then return '\4' end
  if #dump > cap then return '\1' .. string.format('%.0f', #dump) end
  return '\3' .. dump
end

local function copy_of(key)
  local kind = redis.call('TYPE', key).ok
  if kind ~= 'string' then return dumps and SIZES[kind] and dump_of(key, kind) or '\4' end
  local size = redis.call('STRLEN', key)
  if size > cap then return '\1' .. string.format('%.0f', size) end
  local body = redis.call('GET', key) or ''
  return '\2' .. body
end

local out = { time[1], time[2] }
for i, key in ipairs(KEYS) do
  local deadline = redis.call('PEXPIRETIME', key)
  out[2 * i + 1] = deadline
  out[2 * i + 2] = cap > 0 and deadline >= 0 and copy_of(key) or ''
end
return out
