-- What scripts see, and how they are run. Returns a table that takes KEYS and ARGV, what scripts have as
-- their environment, and a function that runs one.
--
-- Functions of the server's own return first what went wrong, or nil: an error that is raised here is a
-- value that scripts can catch.
local server, libraries = ...
local error, select, setmetatable, tostring, type = error, select, setmetatable, tostring, type
local raw_pcall, raw_xpcall = pcall, xpcall

local function unchangeable() error('Attempt to modify a readonly table', 2) end
local function frozen(table)
  return setmetatable({}, { __index = table, __newindex = unchangeable })
end

-- Behind a call that ends a function, that function's level stays: 3 is who has called it.
local function results(failed, ...)
  if failed then error(failed, 3) end
  return ...
end
local function guarded(library)
  for name, raw in pairs(library) do
    library[name] = function(...) return results(raw(...)) end
  end
  return frozen(library)
end

local call, call_many = server.call, server.call_many
local redis = {}

-- Lua hands only so many values over at once to what is not Lua.
local MOST = 1000

function redis.call(...)
  local failed, reply
  if select('#', ...) > MOST then
    failed, reply = call_many({ ... }, select('#', ...))
  else
    failed, reply = call(...)
  end
  if failed then error(failed) end
  return reply
end

function redis.pcall(...)
  local failed, reply
  if select('#', ...) > MOST then
    failed, reply = call_many({ ... }, select('#', ...))
  else
    failed, reply = call(...)
  end
  return failed or reply
end

local WRONG = 'wrong number or type of arguments'
function redis.error_reply(text)
  if type(text) ~= 'string' then return { err = 'ERR ' .. WRONG } end
  if text:sub(1, 1) == '-' then text = text:sub(2) end
  return { err = text:find(' ', 1, true) and text or 'ERR ' .. text }
end

function redis.status_reply(text)
  if type(text) ~= 'string' then return { err = 'ERR ' .. WRONG } end
  return { ok = text }
end

function redis.sha1hex(...)
  if select('#', ...) ~= 1 then error({ err = 'ERR wrong number of arguments' }) end
  return server.sha1hex(tostring((...)))
end

function redis.setresp(...)
  if select('#', ...) ~= 1 then error({ err = 'ERR redis.setresp() requires one argument.' }) end
  if (...) ~= 2 and (...) ~= 3 then error({ err = 'ERR RESP version must be 2 or 3.' }) end
  server.speak((...))
end

function redis.log() end
function redis.breakpoint() return false end
function redis.replicate_commands() return true end
function redis.set_repl() end
redis.LOG_DEBUG, redis.LOG_VERBOSE, redis.LOG_NOTICE, redis.LOG_WARNING = 0, 1, 2, 3
redis.REPL_NONE, redis.REPL_SLAVE, redis.REPL_REPLICA, redis.REPL_AOF, redis.REPL_ALL = 0, 2, 2, 1, 3
redis.REDIS_VERSION, redis.REDIS_VERSION_NUM = '7.0.15', 458767

-- An error of the server's comes out of pcall as its text.
local function caught(fine, failed, ...)
  if not fine and type(failed) == 'table' and type(failed.err) == 'string' then return fine, failed.err end
  return fine, failed, ...
end

local globals = {
  assert = assert, collectgarbage = collectgarbage, error = error, gcinfo = gcinfo,
  getmetatable = getmetatable, ipairs = ipairs, load = load, loadstring = loadstring, next = next,
  pairs = pairs, rawequal = rawequal, rawget = rawget, rawset = rawset, select = select,
  setmetatable = setmetatable, tonumber = tonumber, tostring = tostring, type = type, unpack = unpack,
  xpcall = xpcall, _VERSION = _VERSION,
  pcall = function(...) return caught(raw_pcall(...)) end,
  math = frozen(math), string = frozen(string), table = frozen(table), redis = frozen(redis),
  bit = frozen(libraries.bit), struct = guarded(libraries.struct), cmsgpack = guarded(libraries.cmsgpack),
}
setmetatable(globals, { __index = function(_, name)
  error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
end })
local environment = frozen(globals)
globals._G = environment

local function described(failed)
  if type(failed) ~= 'table' then failed = { err = 'ERR ' .. tostring(failed) } end
  failed.line = server.line()
  return failed
end

return globals, environment, function(script) return raw_xpcall(script, described) end
