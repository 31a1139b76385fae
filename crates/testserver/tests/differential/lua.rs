//! Lua itself: numbers, errors, libraries and limits.

use super::pair::with_each_alike;

/// Bodies of scripts; each is one answer.
const BODIES: &[&str] = &[
    "return {redis.call('ECHO', 123456789012345678), redis.call('ECHO', 0.1), redis.call('ECHO', 1e17)}",
    "return {redis.call('ECHO', -0), redis.call('ECHO', 1e300), redis.call('ECHO', 1/0), redis.call('ECHO', 2^53)}",
    "return {redis.call('ECHO', 99999999999999999), redis.call('ECHO', -1234567890123456789), redis.call('ECHO', 0/0)}",
    "return {1.9, -1.9, 1e300, -1e300, 0/0, 2^53, -2^63, 2^63, true, false, 'x', {ok='fine'}, {1, {2}}, nil, 5}",
    "return {err='boo'}",
    "return {err='-boo x\\r\\ny'}",
    "return redis.error_reply('MY err')",
    "return redis.error_reply('-MY err')",
    "return redis.error_reply('')",
    "return redis.error_reply('word')",
    "return redis.status_reply('a\\nb')",
    "error('boo')",
    "error({err='MY boo'})",
    "error({err='My boo', x=1})",
    "error()",
    "error('x', 0)",
    "error('x', 2)",
    "local x = nil + 1",
    "local function f() error('deep') end f()",
    "local function f() redis.call('GET') end f()",
    "local t = setmetatable({}, {__index = function() error('in index') end}) return t.x",
    "local ok, e = pcall(error, 'x') return {tostring(ok), type(e), e}",
    "local ok, e = pcall(error, {err='X y'}) return {tostring(ok), type(e), e}",
    "local ok, e = pcall(error, {1}) return {tostring(ok), type(e), e}",
    "local ok, e = pcall(function() return nil + 1 end) return {tostring(ok), type(e), e}",
    "local ok, e = pcall(redis.call, 'GET') return {tostring(ok), type(e), e}",
    "local ok, e = pcall(function() return redis.call('NOPE') end) return {tostring(ok), type(e), e}",
    "local ok, a, b = pcall(function() return 1, 2 end) return {tostring(ok), a, b}",
    "local ok, e = pcall(function() x = 1 end) return {tostring(ok), e}",
    "return redis.pcall('GET')",
    "return redis.call()",
    "return redis.pcall()",
    "return redis.call({})",
    "return redis.call('GET', true)",
    "return redis.call('GET', nil)",
    "x = 1",
    "return x",
    "string.foo = 1",
    "KEYS = 1",
    "redis.call = 1",
    "redis = 1",
    "return _G.x",
    "_G.x = 1",
    "return tostring(KEYS[1])",
    "return unpack({}, 1, 8000)",
    "return #{unpack({}, 1, 7997)}",
    "return select('#', unpack({}, 1, 7800))",
    "local t = {} for i = 1, 9000 do t[i] = i end return #t .. table.concat(t, ',')",
    "local t = {} for i = 1, 7000 do t[i] = i end redis.call('RPUSH', 'l', unpack(t)) return redis.call('LLEN', 'l')",
    "local t = {} for i = 1, 7800 do t[i] = 'f' .. i end return #redis.call('HMGET', 'h', unpack(t))",
    "local t = {} for i = 1, 3000 do t[i] = 'v' .. i end redis.call('DEL', 'l') redis.call('RPUSH', 'l', unpack(t)) \
     return #{unpack(redis.call('LRANGE', 'l', 0, -1))}",
    "local t = {} for i = 1, 1002 do t[i] = 'x' end t[700] = true return redis.pcall('DEL', unpack(t))",
    "return {tostring(2^53), 1700000000000.5 .. '', 1712345678901234 .. '', tostring(-0), tostring(1e15), 1e14 .. ''}",
    "return {tonumber('0x10'), tonumber(' 5 '), tonumber('1e3'), tostring(tonumber('')), tostring(tonumber('+12'))}",
    "return {string.format('%.0f', 1712345678901), string.format('%d', 3.7), math.floor(-1.5), math.ceil(1.2), -5 % 3}",
    "return {tostring(bit.bxor(4294967295, 1)), bit.bxor(1.5, 2.5), tostring(bit.bxor(2^32 + 5, -1))}",
    "return {bit.band(7, 10, 2^32 + 3), tostring(bit.bor(2^31, 1)), bit.bor(5), bit.band(1.5, -1)}",
    "redis.call('ZADD', 'z', 0.1, 'a') return {redis.call('ZSCORE', 'z', 'a'), redis.call('ZRANGE', 'z', 0, -1, 'WITHSCORES')}",
    "return {struct.unpack('>I8', '\\255\\255\\255\\255\\255\\255\\255\\255')}",
    "return {struct.unpack('>B', '\\255'), struct.unpack('>I4', '\\255\\255\\255\\254'), struct.unpack('>I', '\\0\\0\\1\\2')}",
    "return {struct.unpack('>BI4', ('x'):rep(9)), struct.unpack('>I2I1', 'abcdef', 3)}",
    "return {tostring((struct.unpack('>I8', '\\0\\32\\0\\0\\0\\0\\0\\1')))}",
    "return struct.unpack('>I8', 'abc')",
    "return struct.unpack('>I8', 'abc', 9)",
    "return struct.unpack('>B', 'abc', 0)",
    "return struct.unpack('>B', 'abc', -1)",
    "return struct.unpack('>B')",
    "return struct.unpack('>B', nil)",
    "return struct.unpack(nil, 'x')",
    "return struct.unpack('>B', 12)",
    "return struct.pack('>I8', -1)",
    "return struct.pack('>I8', 0/0)",
    "return struct.pack('>I8', 1e30)",
    "return struct.pack('>I8', 1/0)",
    "return struct.pack('>I8', -1/0)",
    "return struct.pack('>I8', 2^63)",
    "return struct.pack('>I4', -1)",
    "return struct.pack('>I2', 70000)",
    "return struct.pack('>I3', 1e7)",
    "return struct.pack('>I8', 1.9)",
    "return struct.pack('>I8', '17')",
    "return struct.pack('>B', 300)",
    "return struct.pack('>B', 'x')",
    "return struct.pack('>I8', nil)",
    "return struct.pack('>Q', 1)",
    "return cmsgpack.pack(('x'):rep(31), ('x'):rep(32), ('x'):rep(255), ('x'):rep(256))",
    "return cmsgpack.pack()",
    "return cmsgpack.pack('a', {'b'}, {})",
    "local t = {} for i = 1, 70000 do t[i] = 'x' end return #cmsgpack.pack(t)",
    "local t = {} for i = 1, 20 do t[i] = ('x'):rep(i * i) end return cmsgpack.unpack(cmsgpack.pack(t))",
    "return cmsgpack.unpack('\\146\\161')",
    "return cmsgpack.unpack('\\146\\161a\\193')",
    "local t = {} for i = 1, 1000 do t[i] = 'key' .. i end return cmsgpack.pack(t)",
    "return cmsgpack.unpack('\\193')",
    "return cmsgpack.unpack('')",
    "return cmsgpack.unpack(nil)",
    "return {cmsgpack.unpack('\\146\\161a\\162bc')}",
    "syntax error here",
    "return 1 +",
    "return 'unfinished",
    "for",
    "return ...",
    "return",
    "#!lua\nreturn 1",
    "#!lua flags=bogus\nreturn 1",
    "#!lua bogus\nreturn 1",
    "#!python\nreturn 1",
    "#!lua",
    "#!lua flags=no-writes\nreturn redis.call('SET', 'a', 1)",
    "#!lua flags=no-writes\nreturn redis.pcall('PUBLISH', 'a', 1)",
    "#!lua flags=no-writes,allow-oom,allow-stale,no-cluster,allow-cross-slot-keys\nreturn {ARGV[1], #KEYS}",
    "return {type(loadstring), type(cmsgpack.pack), type(bit), type(redis.call), type(table.concat), _VERSION}",
    "return loadstring('return 1 + 1')()",
    "return {redis.REDIS_VERSION, redis.LOG_WARNING}",
    "return string.rep",
    "return {1, nil, 3}",
    "return {[1]='a', [2]='b', x='c'}",
    "return {{}, {{}}}",
    "local t = {} for i = 1, 5 do t = {t} end return t",
    "return redis.call('EVAL', 'return 1', 0)",
    "return redis.call('SUBSCRIBE', 'x')",
    "return redis.call('config', 'get', 'x')",
    "redis.call('SET', 'a', '1') redis.call('LPUSH', 'a', 1)",
    "return redis.call('TYPE', 'a')",
    "return ('x'):byte(1, -1)",
    "return {('abc'):find('b', 1, true)}",
    "return table.concat({1, 2.5, 'x'}, '-')",
];

#[tokio::test]
async fn lua_is_the_same() {
    with_each_alike(async |pair| {
        pair.clear().await;
        for body in BODIES {
            for command in ["EVAL", "EVAL_RO"] {
                pair.same_or_note(&[command, body, "1", "key", "argument"]).await;
            }
            pair.same_or_note(&["SCRIPT", "LOAD", body]).await;
        }
        for limit in ["1", "0"] {
            pair.same_or_note(&["CONFIG", "SET", "maxmemory", limit]).await;
            for head in ["", "#!lua\n", "#!lua flags=allow-oom\n", "#!lua flags=no-writes\n"] {
                for body in [
                    "return redis.call('SET','o',1)",
                    "redis.call('DEL','o') return redis.pcall('SET','o',1)",
                ] {
                    pair.same_or_note(&["EVAL", &format!("{head}{body}"), "0"]).await;
                }
            }
        }
        pair.finish();
    })
    .await;
}
