-- The environment of scripts. Returns the table for KEYS and ARGV, the environment, and the function that runs a
-- script.
--
-- The server's functions are not wrapped in Lua functions. In `return redis.call(…)`, which is a tail call, a wrapper
-- would replace the script on the stack. Errors would then have no line of the script.
local server, libraries = ...
local error, setmetatable, tostring, type = error, setmetatable, tostring, type
local raw_pcall, raw_xpcall = pcall, xpcall

local function unchangeable() error('Attempt to modify a readonly table', 2) end
local function frozen(table)
  return setmetatable({}, { __index = table, __newindex = unchangeable })
end

local redis = { call = server.call, pcall = server.pcall }

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

function redis.log() end
function redis.breakpoint() return false end
function redis.replicate_commands() return true end
function redis.set_repl() end
redis.LOG_DEBUG, redis.LOG_VERBOSE, redis.LOG_NOTICE, redis.LOG_WARNING = 0, 1, 2, 3
redis.REPL_NONE, redis.REPL_SLAVE, redis.REPL_REPLICA, redis.REPL_AOF, redis.REPL_ALL = 0, 2, 2, 1, 3
redis.REDIS_VERSION, redis.REDIS_VERSION_NUM = '7.0.15', 458767

-- Errors of Rust functions are userdata, which Lua code cannot read.
local function opened(failed)
  if type(failed) == 'userdata' then return server.open(failed) end
  return failed
end

-- pcall returns the error of a command as its text.
local function caught(fine, failed, ...)
  if fine then return fine, failed, ... end
  failed = opened(failed)
  if type(failed) == 'table' and type(failed.err) == 'string' then return fine, failed.err end
  return fine, failed
end

local globals = {
  assert = assert, collectgarbage = collectgarbage, error = error, gcinfo = gcinfo,
  getmetatable = getmetatable, ipairs = ipairs, load = load, loadstring = loadstring, next = next,
  pairs = pairs, rawequal = rawequal, rawget = rawget, rawset = rawset, select = select,
  setmetatable = setmetatable, tonumber = tonumber, tostring = tostring, type = type, unpack = unpack,
  _VERSION = _VERSION,
  pcall = function(...) return caught(raw_pcall(...)) end,
  xpcall = function(run, handler)
    return raw_xpcall(run, function(failed) return handler(opened(failed)) end)
  end,
  math = frozen(math), string = frozen(string), table = frozen(table), redis = frozen(redis),
  bit = frozen(libraries.bit), struct = frozen(libraries.struct), cmsgpack = frozen(libraries.cmsgpack),
}
setmetatable(globals, { __index = function(_, name)
  error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
end })
local environment = frozen(globals)
globals._G = environment

local function described(failed)
  failed = opened(failed)
  if type(failed) ~= 'table' then failed = { err = 'ERR ' .. tostring(failed) } end
  failed.line = server.line()
  return failed
end

return globals, environment, function(script) return raw_xpcall(script, described) end
