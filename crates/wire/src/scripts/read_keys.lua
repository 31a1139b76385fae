-- read_keys.lua: read keys that other programs write.
--
-- Purpose: deadlines, and copies of values up to a cap. Reading a key that has expired makes the
--   server say so. In a cluster one key a call; elsewhere up to 1,000.
-- Parts: (none)
-- Flags: no-writes
-- KEYS the keys
-- ARGV 1 the cap in bytes (0: no copies), 2 '1' to copy what is not a string, as DUMP writes it,
--   else '0', 3 copies only of keys whose deadline is at most this, in ms (0: of all), 4 'none', 'all' or
--   'named': which fields of hashes to copy one by one, then their names
-- Returns: secs, micros, then per key: deadline in ms (-1: it has none, -2: there is no such key); where
--   copies are asked for, each is followed by one
--   a copy: '' where there is none; else a byte: 1 too large (and its size, where it is known),
--   2 a string (and its bytes), 3 another type (and its dump), 4 of a type that is not copied, 5 the fields
--   of a hash (each as the length of its name in 4 bytes, the name, and the same of the value)
-- Invariants: nothing is written.

local time = redis.call('TIME')
local cap, dumps, horizon = tonumber(ARGV[1]), ARGV[2] == '1', tonumber(ARGV[3])
local which, named = ARGV[4], { unpack(ARGV, 5) }
if horizon == 0 then horizon = math.huge end
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

-- Beside the bytes of a name and a value, those of their lengths; and fields that are read in one call.
local EACH, PAGE = 8, 1000

-- Values are read once it is known that they fit.
local function fields_of(key)
  local names, size = named, 0
  if which == 'all' then
    if redis.call('HLEN', key) * EACH > cap then return '\1' end
    names = redis.call('HKEYS', key)
  end
  for _, name in ipairs(names) do
    size = size + redis.call('HSTRLEN', key, name)
    if size > cap then return '\1' end
  end
  local fields = {}
  for first = 1, #names, PAGE do
    local values = redis.call('HMGET', key, unpack(names, first, math.min(first + PAGE - 1, #names)))
    for i, copy in ipairs(values) do
      local name = names[first + i - 1]
      if copy then
        fields[#fields + 1] = struct.pack('>I4', #name) .. name .. struct.pack('>I4', #copy) .. copy
      end
    end
  end
  local body = table.concat(fields)
  if #body > cap then return '\1' .. string.format('%.0f', #body) end
  return '\5' .. body
end

local function copy_of(key)
  local kind = redis.call('TYPE', key).ok
  if kind == 'hash' and which ~= 'none' then return fields_of(key) end
  if kind ~= 'string' then return dumps and SIZES[kind] and dump_of(key, kind) or '\4' end
  local size = redis.call('STRLEN', key)
  if size > cap then return '\1' .. string.format('%.0f', size) end
  local body = redis.call('GET', key) or ''
  return '\2' .. body
end

local out = { time[1], time[2] }
if cap == 0 then
  for i, key in ipairs(KEYS) do out[i + 2] = redis.call('PEXPIRETIME', key) end
  return out
end
for i, key in ipairs(KEYS) do
  local deadline = redis.call('PEXPIRETIME', key)
  out[2 * i + 1] = deadline
  out[2 * i + 2] = deadline >= 0 and deadline <= horizon and copy_of(key) or ''
end
return out
