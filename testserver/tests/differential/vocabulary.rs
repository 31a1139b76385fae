//! Words for random commands.

use super::random::Random;

/// Commands, with letters for what differs: `k` key, `v` value, `f` field, `m` member, `s` score,
/// `i` place, `n` number, `t` a time in ms, `u` one in s, `r` a bound of scores.
pub const COMMANDS: &[&str] = &[
    "SET k v", "SET k v PXAT t", "SET k v EXAT u", "SET k v NX", "SET k v XX", "SET k v KEEPTTL",
    "SET k v GET", "SET k n", "SET k v NX GET PXAT t", "SETNX k v", "GETSET k v", "GET k", "MGET k k k",
    "MSET k v k v", "GETEX k PXAT t", "GETEX k PERSIST", "GETEX k", "GETDEL k", "GETRANGE k i i",
    "SUBSTR k i i", "STRLEN k", "APPEND k v", "INCR k", "DECR k", "INCRBY k n", "DECRBY k n",
    "SETEX k -1 v", "PSETEX k x v", "SETEX k 9223372036854775807 v",
    "EXISTS k", "EXISTS k k k", "TOUCH k k", "DEL k", "UNLINK k k", "TYPE k", "KEYS *", "KEYS [ab]*",
    "SCAN 0 COUNT 1000", "SCAN 0 MATCH a* COUNT 1000", "SCAN 0 TYPE hash COUNT 1000", "DBSIZE",
    "RENAME k k", "RENAMENX k k", "COPY k k", "COPY k k REPLACE", "OBJECT ENCODING k",
    "PEXPIREAT k t", "PEXPIREAT k t NX", "PEXPIREAT k t XX", "PEXPIREAT k t GT", "PEXPIREAT k t LT",
    "EXPIREAT k u", "EXPIRE k -1", "PEXPIRE k 0", "PERSIST k", "PEXPIRETIME k", "EXPIRETIME k",
    "HSET k f v", "HSET k f v f v", "HMSET k f v", "HSETNX k f v", "HGET k f", "HMGET k f f", "HDEL k f",
    "HDEL k f f f", "HEXISTS k f", "HLEN k", "HSTRLEN k f", "HGETALL k", "HKEYS k", "HVALS k",
    "HINCRBY k f n", "HSCAN k 0", "HSCAN k 0 MATCH f* COUNT 5", "HSET k f n",
    "ZADD k s m", "ZADD k s m s m s m", "ZADD k NX s m", "ZADD k XX CH s m", "ZADD k GT CH s m",
    "ZADD k LT s m", "ZADD k INCR s m", "ZADD k NX INCR s m", "ZINCRBY k s m", "ZREM k m", "ZREM k m m",
    "ZSCORE k m", "ZMSCORE k m m", "ZCARD k", "ZCOUNT k r r", "ZRANK k m", "ZREVRANK k m",
    "ZRANGE k i i", "ZRANGE k i i WITHSCORES", "ZRANGE k i i REV", "ZRANGE k r r BYSCORE",
    "ZRANGE k r r BYSCORE LIMIT i i", "ZRANGE k r r BYSCORE REV WITHSCORES", "ZRANGEBYSCORE k r r",
    "ZRANGEBYSCORE k r r WITHSCORES LIMIT i i", "ZREVRANGEBYSCORE k r r", "ZREVRANGE k i i",
    "ZREMRANGEBYSCORE k r r", "ZREMRANGEBYRANK k i i", "ZPOPMIN k", "ZPOPMIN k 2", "ZSCAN k 0",
    "LPUSH k v", "RPUSH k v v", "LPOP k", "RPOP k", "LPOP k 2", "LLEN k", "LRANGE k i i",
    "SADD k m", "SADD k m m m", "SREM k m", "SCARD k", "SMEMBERS k", "SISMEMBER k m",
    "XADD k 5-1 f v", "XADD k 9-n f v", "XLEN k",
    "PUBLISH a b", "SPUBLISH a b", "ECHO v", "PING", "PING v", "TIME x", "ROLE", "SELECT 0", "WAIT 0 1",
    "CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", "CONFIG SET maxmemory 0",
    "CONFIG GET notify-keyspace-events", "CONFIG SET notify-keyspace-events KEAn",
    "CONFIG SET notify-keyspace-events Ex", "CONFIG SET notify-keyspace-events KEA",
    "MULTI", "EXEC", "DISCARD", "WATCH k", "UNWATCH", "SCRIPT EXISTS v", "EVALSHA v 0", "EVAL v 0",
    "CLIENT SETNAME v", "CLIENT GETNAME", "FLUSHALL", "NOPE k v",
];

const KEYS: &[&str] = &["a", "b", "ab", "c{x}", "\u{e9}"];
const VALUES: &[&str] = &["", "1", "x", "0.5", "12345", "hello world", "9223372036854775807", "-3"];
const NAMES: &[&str] = &["f", "ff", "g", "1", "", "zz"];
const SCORES: &[&str] = &[
    "0", "1", "-1", "1.5", "1700000000000", "1700000000000.0009765625", "inf", "-inf", "1e10", "0.1", "x",
    "1e400", "nan", "-0", "8796093022208",
];
const PLACES: &[&str] = &["0", "1", "-1", "2", "-3", "10", "-100001", "9999999", "x"];
const NUMBERS: &[&str] = &["1", "2", "-1", "0", "100", "9223372036854775807", "-9223372036854775808", "x", "1.5"];
const TIMES: &[&str] = &["1000", "4102444800000", "4102444800001", "4102444899999", "-5", "0", "x"];
const BOUNDS: &[&str] = &["-inf", "+inf", "(1", "1", "(1700000000000", "1700000000001", "0", "(-inf", "x", "inf"];

/// A command from one of the forms; now and then with a word that does not belong.
pub fn command(random: &mut Random, form: &str) -> Vec<Vec<u8>> {
    let mut words: Vec<Vec<u8>> = form.split(' ').map(|word| fill(random, word)).collect();
    if random.once_in(40) {
        let at = 1 + random.below(words.len());
        words.truncate(at);
    }
    if random.once_in(40) {
        words.push(random.text(6));
    }
    words
}

fn fill(random: &mut Random, word: &str) -> Vec<u8> {
    let from = match word {
        "k" => KEYS,
        "v" => VALUES,
        "f" | "m" => NAMES,
        "s" => SCORES,
        "i" => PLACES,
        "n" => NUMBERS,
        "t" => TIMES,
        "u" => &["1", "4102444800", "4102444801", "-1", "x"],
        "r" => BOUNDS,
        "9-n" => return format!("9-{}", random.below(5)).into_bytes(),
        _ => return word.as_bytes().to_vec(),
    };
    if random.once_in(60) { random.text(80) } else { random.one(from).as_bytes().to_vec() }
}
