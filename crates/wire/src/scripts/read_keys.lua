-- read_keys.lua: Read deadlines and values of attached keys.
--
-- Purpose: Reads keys of other programs, with copies of their values up to a limit. Reading a key that has expired makes the
--   server delete and announce it. In a cluster a call has one key, elsewhere up to 1,000.
-- Parts: (none)
-- Flags: no-writes
-- KEYS the keys
-- ARGV 1 the limit of a copy in bytes (0: no copies), 2 '1' to copy other types than strings, as DUMP writes them, else '0',
--   3 copies only of keys whose deadline is at most this, in ms (0: of all), 4 'none', 'all' or 'named': which fields of
--   hashes to copy one by one, then their names
-- Returns: secs, micros, then per key: deadline in ms (-1: it has none, -2: there is no such key); with copies, each is
--   followed by one
--   a copy: '' if there is none; else a byte: 1 too large (and its size, if known), 2 a string (and its bytes), 3 another
--   type (and its dump), 4 a type that is not copied, 5 the fields of a hash (each as length of its name in 4 bytes, name,
--   length of its value in 4 bytes, value)
-- Invariants: Nothing is written, except that the server deletes expired keys.

local time = redis.call('TIME')
local cap, dumps, horizon = tonumber(ARGV[1]), ARGV[2] == '1', tonumber(ARGV[3])
local field_mode, named_fields = ARGV[4], { unpack(ARGV, 5) }
if horizon == 0 then horizon = math.huge end
local SIZES = { hash = 'HLEN', list = 'LLEN', set = 'SCARD', zset = 'ZCARD', stream = 'XLEN' }

-- A dump has at least two bytes for an element. If these exceed the limit, no dump is made.
local function dump_of(key, kind)
  local count = redis.call(SIZES[kind], key)
  if count * 2 > cap then return '\1' end
  local dump = redis.call('DUMP', key)
  if not dump then return '\4' end
  if #dump > cap then return '\1' .. string.format('%.0f', #dump) end
  return '\3' .. dump
end

-- The bytes of a field's two lengths, and how many fields one HMGET reads at most.
local FIELD_HEAD_BYTES, FIELDS_PER_CALL = 8, 1000

-- The sizes are read first, so that no value beyond the limit is read.
local function fields_of(key)
  local names, size = named_fields, 0
  if field_mode == 'all' then
    if redis.call('HLEN', key) * FIELD_HEAD_BYTES > cap then return '\1' end
    names = redis.call('HKEYS', key)
  end
  for _, name in ipairs(names) do
    size = size + redis.call('HSTRLEN', key, name)
    if size > cap then return '\1' end
  end
  local fields = {}
  for first = 1, #names, FIELDS_PER_CALL do
    local values = redis.call('HMGET', key, unpack(names, first, math.min(first + FIELDS_PER_CALL - 1, #names)))
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
  if kind == 'hash' and field_mode ~= 'none' then return fields_of(key) end
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
