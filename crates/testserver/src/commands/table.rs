//! The table of commands. A new command needs a line here and a function.

use std::collections::HashMap;
use std::ops::BitOr;
use std::sync::LazyLock;

use bytes::Bytes;

use super::*;
use crate::reply::CommandResult;

type CommandFunction = fn(&mut CommandCall<'_>) -> CommandResult;

/// A command.
#[derive(Debug)]
pub(crate) struct RedisCommand {
    /// In lower case. A subcommand is written as `config|get`.
    pub(crate) name: &'static str,
    run: CommandFunction,
    /// The number of words. A negative number is a minimum.
    arity: i32,
    pub(crate) flags: CommandFlags,
    keys: KeyPositions,
    pub(crate) group: CommandCategory,
}

/// The properties of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommandFlags(u16);

impl CommandFlags {
    const NONE: Self = Self(0);
    /// Changes keys.
    pub(crate) const WRITE: Self = Self(1);
    /// Reads keys.
    pub(crate) const READ: Self = Self(2);
    /// Is refused when the memory is full.
    pub(crate) const DENY_OOM: Self = Self(4);
    /// Is not allowed in scripts.
    pub(crate) const NO_SCRIPT: Self = Self(8);
    /// Counts as a write where writes are forbidden.
    pub(crate) const MAY_REPLICATE: Self = Self(16);
    /// Needs no login.
    pub(crate) const NO_AUTH: Self = Self(32);
    /// Has subcommands.
    pub(crate) const CONTAINER: Self = Self(64);
    /// Is allowed between SUBSCRIBE and UNSUBSCRIBE in RESP2.
    pub(crate) const SUBSCRIBED: Self = Self(128);
    /// Is executed by the engine.
    pub(crate) const ENGINE: Self = Self(256);
    /// Is in the category `dangerous`.
    pub(crate) const DANGEROUS: Self = Self(512);
    /// Is executed immediately between MULTI and EXEC.
    pub(crate) const NOT_QUEUED: Self = Self(1024);
    /// Writes, and returns data that it has read.
    pub(crate) const ACCESS: Self = Self(2048);

    pub(crate) fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for CommandFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The positions of keys among the words of a command.
#[derive(Clone, Copy, Debug)]
enum KeyPositions {
    None,
    /// First, last (counted from the end if negative), and step.
    At(usize, i32, usize),
    /// The word at this position is the number of keys, which follow it.
    Counted(usize),
}

/// The categories of commands for ACLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandCategory {
    Keyspace,
    String,
    Hash,
    SortedSet,
    List,
    Set,
    Stream,
    PubSub,
    Transaction,
    Scripting,
    Connection,
    Admin,
}

impl CommandCategory {
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "keyspace" => Self::Keyspace,
            "string" => Self::String,
            "hash" => Self::Hash,
            "sortedset" => Self::SortedSet,
            "list" => Self::List,
            "set" => Self::Set,
            "stream" => Self::Stream,
            "pubsub" => Self::PubSub,
            "transaction" => Self::Transaction,
            "scripting" => Self::Scripting,
            "connection" => Self::Connection,
            "admin" => Self::Admin,
            _ => return None,
        })
    }
}

impl RedisCommand {
    pub(crate) fn takes(&self, words: usize) -> bool {
        let words = i32::try_from(words).unwrap_or(i32::MAX);
        if self.arity < 0 { words >= -self.arity } else { words == self.arity }
    }

    pub(crate) fn run(&self, call: &mut CommandCall<'_>) -> CommandResult {
        (self.run)(call)
    }

    /// Returns whether the command reads its keys, and whether it writes them. A script counts as both, except that a script
    /// under EVAL_RO only reads.
    pub(crate) fn access(&self) -> (bool, bool) {
        let script = matches!(self.keys, KeyPositions::Counted(_));
        let reads = script || self.flags.has(CommandFlags::READ) || self.flags.has(CommandFlags::ACCESS);
        (reads, self.flags.has(CommandFlags::WRITE) || script && self.flags.has(CommandFlags::MAY_REPLICATE))
    }

    /// Returns the keys among these words.
    pub(crate) fn keys_of<'a>(&self, args: &'a [Bytes]) -> Box<dyn Iterator<Item = &'a Bytes> + 'a> {
        match self.keys {
            KeyPositions::None => Box::new(std::iter::empty()),
            KeyPositions::At(first, last, step) => {
                let end = if last < 0 { args.len() as i64 + i64::from(last) } else { i64::from(last) };
                let end = usize::try_from(end + 1).unwrap_or_default().min(args.len());
                Box::new(args.get(first..end).unwrap_or_default().iter().step_by(step))
            }
            KeyPositions::Counted(at) => {
                let count = args.get(at).and_then(|count| crate::number::integer(count)).unwrap_or_default();
                let count = usize::try_from(count).unwrap_or_default();
                Box::new(args.iter().skip(at + 1).take(count))
            }
        }
    }
}

const fn command(
    name: &'static str,
    run: CommandFunction,
    arity: i32,
    flags: CommandFlags,
    keys: KeyPositions,
    group: CommandCategory,
) -> RedisCommand {
    RedisCommand { name, run, arity, flags, keys, group }
}

/// The function of commands that the engine executes. It is never called.
fn by_engine(_: &mut CommandCall<'_>) -> CommandResult {
    Err(crate::reply::ErrorReply::of("ERR the engine executes this command"))
}

// Combinations of flags that several commands have.
const GROWING_WRITE: CommandFlags = CommandFlags(CommandFlags::WRITE.0 | CommandFlags::DENY_OOM.0);
const GROWING_READ_WRITE: CommandFlags = CommandFlags(GROWING_WRITE.0 | CommandFlags::ACCESS.0);
const PLAIN_WRITE: CommandFlags = CommandFlags::WRITE;
const READ_WRITE: CommandFlags = CommandFlags(CommandFlags::WRITE.0 | CommandFlags::ACCESS.0);
const READS: CommandFlags = CommandFlags::READ;
const SENDS: CommandFlags = CommandFlags::MAY_REPLICATE;
const SUBSCRIBES: CommandFlags = CommandFlags(CommandFlags::NO_SCRIPT.0 | CommandFlags::SUBSCRIBED.0);
const RUNS_SCRIPT: CommandFlags =
    CommandFlags(CommandFlags::NO_SCRIPT.0 | CommandFlags::ENGINE.0 | CommandFlags::MAY_REPLICATE.0);
const ENGINE_ONLY: CommandFlags = CommandFlags(CommandFlags::NO_SCRIPT.0 | CommandFlags::ENGINE.0);
const CONTROLS_TRANSACTION: CommandFlags =
    CommandFlags(CommandFlags::NO_SCRIPT.0 | CommandFlags::ENGINE.0 | CommandFlags::NOT_QUEUED.0);
const OPENS: CommandFlags = CommandFlags(CommandFlags::NO_SCRIPT.0 | CommandFlags::NO_AUTH.0);
const LEAVES: CommandFlags = CommandFlags(OPENS.0 | CommandFlags::SUBSCRIBED.0 | CommandFlags::NOT_QUEUED.0);
const OPERATES: CommandFlags = CommandFlags(CommandFlags::NO_SCRIPT.0 | CommandFlags::DANGEROUS.0);
const HAS_SUBCOMMANDS: CommandFlags = CommandFlags(CommandFlags::CONTAINER.0 | CommandFlags::NO_SCRIPT.0);

const NONE: KeyPositions = KeyPositions::None;
const ONE: KeyPositions = KeyPositions::At(1, 1, 1);
const TWO: KeyPositions = KeyPositions::At(1, 2, 1);
const EVERY: KeyPositions = KeyPositions::At(1, -1, 1);
const PAIRS: KeyPositions = KeyPositions::At(1, -1, 2);
const SECOND: KeyPositions = KeyPositions::At(2, 2, 1);
const COUNTED: KeyPositions = KeyPositions::Counted(2);

use CommandCategory::*;

#[rustfmt::skip]
static TABLE: &[RedisCommand] = &[
    command("set", set::set, -3, GROWING_WRITE, ONE, String),
    command("setnx", set::setnx, 3, GROWING_WRITE, ONE, String),
    command("setex", set::setex, 4, GROWING_WRITE, ONE, String),
    command("psetex", set::psetex, 4, GROWING_WRITE, ONE, String),
    command("getset", set::getset, 3, GROWING_READ_WRITE, ONE, String),
    command("mset", set::mset, -3, GROWING_WRITE, PAIRS, String),
    command("get", texts::get, 2, READS, ONE, String),
    command("mget", texts::mget, -2, READS, EVERY, String),
    command("getex", texts::getex, -2, READ_WRITE, ONE, String),
    command("getdel", texts::getdel, 2, READ_WRITE, ONE, String),
    command("getrange", texts::getrange, 4, READS, ONE, String),
    command("substr", texts::getrange, 4, READS, ONE, String),
    command("strlen", texts::strlen, 2, READS, ONE, String),
    command("append", texts::append, 3, GROWING_WRITE, ONE, String),
    command("incr", numbers::incr, 2, GROWING_READ_WRITE, ONE, String),
    command("decr", numbers::decr, 2, GROWING_READ_WRITE, ONE, String),
    command("incrby", numbers::incrby, 3, GROWING_READ_WRITE, ONE, String),
    command("decrby", numbers::decrby, 3, GROWING_READ_WRITE, ONE, String),

    command("exists", keys::exists, -2, READS, EVERY, Keyspace),
    command("touch", keys::exists, -2, READS, EVERY, Keyspace),
    command("del", keys::del, -2, PLAIN_WRITE, EVERY, Keyspace),
    command("unlink", keys::del, -2, PLAIN_WRITE, EVERY, Keyspace),
    command("type", keys::type_of, 2, READS, ONE, Keyspace),
    command("rename", copies::rename, 3, READ_WRITE, TWO, Keyspace),
    command("renamenx", copies::renamenx, 3, READ_WRITE, TWO, Keyspace),
    command("copy", copies::copy, -3, GROWING_READ_WRITE, TWO, Keyspace),
    command("dump", copies::dump, 2, READS, ONE, Keyspace),
    command("restore", copies::restore, -4, GROWING_WRITE, ONE, Keyspace),
    command("randomkey", keys::randomkey, 1, READS, NONE, Keyspace),
    command("keys", keys::keys, 2, CommandFlags(READS.0 | CommandFlags::DANGEROUS.0), NONE, Keyspace),
    command("scan", scans::scan, -2, READS, NONE, Keyspace),
    command("dbsize", keys::dbsize, 1, READS, NONE, Keyspace),
    command("flushall", keys::flush, -1, CommandFlags(PLAIN_WRITE.0 | CommandFlags::DANGEROUS.0), NONE, Keyspace),
    command("flushdb", keys::flush, -1, CommandFlags(PLAIN_WRITE.0 | CommandFlags::DANGEROUS.0), NONE, Keyspace),
    command("object", server::unknown_subcommand, -2, CommandFlags::CONTAINER, NONE, Keyspace),
    command("object|encoding", keys::encoding, 3, READS, SECOND, Keyspace),
    command("ttl", expiry::ttl, 2, READS, ONE, Keyspace),
    command("pttl", expiry::pttl, 2, READS, ONE, Keyspace),
    command("expiretime", expiry::expiretime, 2, READS, ONE, Keyspace),
    command("pexpiretime", expiry::pexpiretime, 2, READS, ONE, Keyspace),
    command("expire", expiry::expire, -3, PLAIN_WRITE, ONE, Keyspace),
    command("pexpire", expiry::pexpire, -3, PLAIN_WRITE, ONE, Keyspace),
    command("expireat", expiry::expireat, -3, PLAIN_WRITE, ONE, Keyspace),
    command("pexpireat", expiry::pexpireat, -3, PLAIN_WRITE, ONE, Keyspace),
    command("persist", expiry::persist, 2, PLAIN_WRITE, ONE, Keyspace),

    command("hset", hashes::hset, -4, GROWING_WRITE, ONE, Hash),
    command("hmset", hashes::hset, -4, GROWING_WRITE, ONE, Hash),
    command("hsetnx", hashes::hsetnx, 4, GROWING_WRITE, ONE, Hash),
    command("hget", hashes::hget, 3, READS, ONE, Hash),
    command("hmget", hashes::hmget, -3, READS, ONE, Hash),
    command("hdel", hashes::hdel, -3, PLAIN_WRITE, ONE, Hash),
    command("hexists", hashes::hexists, 3, READS, ONE, Hash),
    command("hlen", hashes::hlen, 2, READS, ONE, Hash),
    command("hstrlen", hashes::hstrlen, 3, READS, ONE, Hash),
    command("hgetall", hashes::hgetall, 2, READS, ONE, Hash),
    command("hkeys", hashes::hkeys, 2, READS, ONE, Hash),
    command("hvals", hashes::hvals, 2, READS, ONE, Hash),
    command("hincrby", hashes::hincrby, 4, GROWING_READ_WRITE, ONE, Hash),
    command("hscan", scans::hscan, -3, READS, ONE, Hash),

    command("zadd", zadd::zadd, -4, GROWING_WRITE, ONE, SortedSet),
    command("zincrby", zadd::zincrby, 4, GROWING_READ_WRITE, ONE, SortedSet),
    command("zrem", zsets::zrem, -3, PLAIN_WRITE, ONE, SortedSet),
    command("zscore", zsets::zscore, 3, READS, ONE, SortedSet),
    command("zmscore", zsets::zmscore, -3, READS, ONE, SortedSet),
    command("zcard", zsets::zcard, 2, READS, ONE, SortedSet),
    command("zcount", zsets::zcount, 4, READS, ONE, SortedSet),
    command("zrank", zsets::zrank, 3, READS, ONE, SortedSet),
    command("zrevrank", zsets::zrevrank, 3, READS, ONE, SortedSet),
    command("zpopmin", zsets::zpopmin, -2, READ_WRITE, ONE, SortedSet),
    command("zremrangebyscore", zsets::zremrangebyscore, 4, PLAIN_WRITE, ONE, SortedSet),
    command("zremrangebyrank", zsets::zremrangebyrank, 4, PLAIN_WRITE, ONE, SortedSet),
    command("zrange", zranges::zrange, -4, READS, ONE, SortedSet),
    command("zrangebyscore", zranges::zrangebyscore, -4, READS, ONE, SortedSet),
    command("zrevrangebyscore", zranges::zrevrangebyscore, -4, READS, ONE, SortedSet),
    command("zrevrange", zranges::zrevrange, -4, READS, ONE, SortedSet),
    command("zscan", scans::zscan, -3, READS, ONE, SortedSet),

    command("lpush", lists::lpush, -3, GROWING_WRITE, ONE, List),
    command("rpush", lists::rpush, -3, GROWING_WRITE, ONE, List),
    command("lpop", lists::lpop, -2, READ_WRITE, ONE, List),
    command("rpop", lists::rpop, -2, READ_WRITE, ONE, List),
    command("llen", lists::llen, 2, READS, ONE, List),
    command("lrange", lists::lrange, 4, READS, ONE, List),

    command("sadd", sets::sadd, -3, GROWING_WRITE, ONE, Set),
    command("srem", sets::srem, -3, PLAIN_WRITE, ONE, Set),
    command("scard", sets::scard, 2, READS, ONE, Set),
    command("smembers", sets::smembers, 2, READS, ONE, Set),
    command("sismember", sets::sismember, 3, READS, ONE, Set),
    command("sscan", scans::sscan, -3, READS, ONE, Set),

    command("xadd", streams::xadd, -5, GROWING_WRITE, ONE, Stream),
    command("xlen", streams::xlen, 2, READS, ONE, Stream),

    command("publish", pubsub::publish, 3, SENDS, NONE, PubSub),
    command("spublish", pubsub::spublish, 3, SENDS, NONE, PubSub),
    command("pubsub", server::unknown_subcommand, -2, CommandFlags::CONTAINER, NONE, PubSub),
    command("pubsub|shardnumsub", pubsub::shardnumsub, -2, CommandFlags::NONE, NONE, PubSub),
    command("subscribe", pubsub::subscribe, -2, SUBSCRIBES, NONE, PubSub),
    command("unsubscribe", pubsub::unsubscribe, -1, SUBSCRIBES, NONE, PubSub),
    command("psubscribe", pubsub::psubscribe, -2, SUBSCRIBES, NONE, PubSub),
    command("punsubscribe", pubsub::punsubscribe, -1, SUBSCRIBES, NONE, PubSub),
    command("ssubscribe", pubsub::ssubscribe, -2, SUBSCRIBES, NONE, PubSub),
    command("sunsubscribe", pubsub::sunsubscribe, -1, SUBSCRIBES, NONE, PubSub),

    command("multi", by_engine, 1, CONTROLS_TRANSACTION, NONE, Transaction),
    command("exec", by_engine, 1, CONTROLS_TRANSACTION, NONE, Transaction),
    command("discard", by_engine, 1, CONTROLS_TRANSACTION, NONE, Transaction),
    command("watch", by_engine, -2, CONTROLS_TRANSACTION, EVERY, Transaction),
    command("unwatch", by_engine, 1, ENGINE_ONLY, NONE, Transaction),

    command("eval", by_engine, -3, RUNS_SCRIPT, COUNTED, Scripting),
    command("evalsha", by_engine, -3, RUNS_SCRIPT, COUNTED, Scripting),
    command("eval_ro", by_engine, -3, ENGINE_ONLY, COUNTED, Scripting),
    command("evalsha_ro", by_engine, -3, ENGINE_ONLY, COUNTED, Scripting),
    command("script", server::unknown_subcommand, -2, HAS_SUBCOMMANDS, NONE, Scripting),
    command("script|load", by_engine, 3, ENGINE_ONLY, NONE, Scripting),
    command("script|exists", by_engine, -3, ENGINE_ONLY, NONE, Scripting),
    command("script|flush", by_engine, -2, ENGINE_ONLY, NONE, Scripting),

    command("hello", connection::hello, -1, OPENS, NONE, Connection),
    command("auth", connection::auth, -2, OPENS, NONE, Connection),
    command("ping", connection::ping, -1, CommandFlags::SUBSCRIBED, NONE, Connection),
    command("echo", connection::echo, 2, CommandFlags::NONE, NONE, Connection),
    command("select", connection::select, 2, CommandFlags::NONE, NONE, Connection),
    command("reset", connection::reset, 1, LEAVES, NONE, Connection),
    command("quit", connection::quit, -1, LEAVES, NONE, Connection),
    command("client", server::unknown_subcommand, -2, HAS_SUBCOMMANDS, NONE, Connection),
    command("client|id", client::id, 2, CommandFlags::NO_SCRIPT, NONE, Connection),
    command("client|getname", client::getname, 2, CommandFlags::NO_SCRIPT, NONE, Connection),
    command("client|setname", client::setname, 3, CommandFlags::NO_SCRIPT, NONE, Connection),
    command("client|setinfo", client::setinfo, 4, CommandFlags::NO_SCRIPT, NONE, Connection),
    command("client|no-evict", client::no_evict, 3, OPERATES, NONE, Connection),
    command("client|kill", client::kill, -3, OPERATES, NONE, Connection),
    command("command", server::command, -1, CommandFlags::NONE, NONE, Connection),

    command("time", server::time, 1, CommandFlags::NONE, NONE, Admin),
    command("role", server::role, 1, CommandFlags(CommandFlags::NO_SCRIPT.0 | CommandFlags::DANGEROUS.0), NONE, Admin),
    command("info", server::info, -1, CommandFlags::DANGEROUS, NONE, Admin),
    command("wait", server::wait, 3, CommandFlags::NO_SCRIPT, NONE, Admin),
    command("waitaof", server::waitaof, 4, CommandFlags::NO_SCRIPT, NONE, Admin),
    command("config", server::unknown_subcommand, -2, HAS_SUBCOMMANDS, NONE, Admin),
    command("config|get", config::get, -3, OPERATES, NONE, Admin),
    command("config|set", config::set, -4, OPERATES, NONE, Admin),
    command("config|resetstat", config::resetstat, 2, OPERATES, NONE, Admin),
    command("acl", server::unknown_subcommand, -2, HAS_SUBCOMMANDS, NONE, Admin),
    command("acl|setuser", acl::setuser, -3, OPERATES, NONE, Admin),
    command("acl|deluser", acl::deluser, -3, OPERATES, NONE, Admin),
    command("acl|getuser", acl::getuser, 3, OPERATES, NONE, Admin),
    command("acl|list", acl::list, 2, OPERATES, NONE, Admin),
    command("acl|users", acl::users, 2, OPERATES, NONE, Admin),
    command("acl|whoami", acl::whoami, 2, CommandFlags::NO_SCRIPT, NONE, Admin),
];

static NAMES: LazyLock<HashMap<&'static str, &'static RedisCommand>> =
    LazyLock::new(|| TABLE.iter().map(|command| (command.name, command)).collect());

/// No command has a longer name.
const MAX_COMMAND_NAME_BYTES: usize = 32;

/// Returns the command at the start of these words, or its subcommand, if the words name one.
pub(crate) fn find(args: &[Bytes]) -> Option<&'static RedisCommand> {
    let mut name = [0; MAX_COMMAND_NAME_BYTES];
    let name = name.get_mut(..args.first()?.len())?;
    name.copy_from_slice(args.first()?);
    name.make_ascii_lowercase();
    let command = *NAMES.get(std::str::from_utf8(name).ok()?)?;
    match args.get(1).filter(|_| command.flags.has(CommandFlags::CONTAINER)) {
        Some(word) => {
            let word = std::string::String::from_utf8_lossy(word).to_ascii_lowercase();
            Some(NAMES.get(format!("{}|{word}", command.name).as_str()).copied().unwrap_or(command))
        }
        None => Some(command),
    }
}

pub(crate) fn all() -> impl Iterator<Item = &'static RedisCommand> {
    TABLE.iter()
}
