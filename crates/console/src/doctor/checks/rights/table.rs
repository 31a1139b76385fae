//! The commands that keylapse uses, each in a form that changes nothing.

use crate::doctor::refusal::Need;

/// A command, and the rule that grants it.
pub(super) struct Right {
    pub(super) need: Need,
    pub(super) rule: &'static str,
    /// Its words. `KEY` holds a text of ours, so that commands for other types are refused for that; `NONE` is a key
    /// that does not exist.
    pub(super) words: &'static [&'static str],
    /// Whether it makes a key where `KEY` is missing.
    pub(super) creates: bool,
}

macro_rules! rights {
    ($($need:ident: $($rule:literal [$($word:literal)+] $($creates:ident)?;)+)+) => {
        &[$($(Right {
            need: Need::$need,
            rule: $rule,
            words: &[$($word),+],
            creates: rights!(@ $($creates)?),
        },)+)+]
    };
    (@ creates) => { true };
    (@) => { false };
}

/// What is tried with one request. An EXEC that is refused ends what MULTI has begun, too.
pub(super) const RIGHTS: &[Right] = rights! {
    Timers:
        "+ping" ["PING"];
        "+time" ["TIME"];
        "+wait" ["WAIT" "0" "0"];
        "+eval" ["EVAL" "return 1" "0"];
        "+evalsha" ["EVALSHA" "0000000000000000000000000000000000000000" "0"];
        "+multi" ["MULTI"];
        "+exec" ["EXEC"];
        "+get" ["GET" "KEY"];
        "+set" ["SET" "KEY" "x" "PX" "60000"];
        "+exists" ["EXISTS" "KEY"];
        "+type" ["TYPE" "KEY"];
        "+pexpire" ["PEXPIRE" "KEY" "60000"];
        "+pttl" ["PTTL" "KEY"];
        "+del" ["DEL" "NONE"];
        "+unlink" ["UNLINK" "NONE"];
        "+zadd" ["ZADD" "KEY" "1" "x"] creates;
        "+zrem" ["ZREM" "KEY" "x"];
        "+zrange" ["ZRANGE" "KEY" "0" "0"];
        "+zrangebyscore" ["ZRANGEBYSCORE" "KEY" "0" "1"];
        "+zscore" ["ZSCORE" "KEY" "x"];
        "+zmscore" ["ZMSCORE" "KEY" "x"];
        "+zcard" ["ZCARD" "KEY"];
        "+zcount" ["ZCOUNT" "KEY" "0" "1"];
        "+zremrangebyrank" ["ZREMRANGEBYRANK" "KEY" "0" "0"];
        "+zscan" ["ZSCAN" "KEY" "0"];
        "+hset" ["HSET" "KEY" "x" "x"] creates;
        "+hsetnx" ["HSETNX" "KEY" "x" "x"] creates;
        "+hget" ["HGET" "KEY" "x"];
        "+hmget" ["HMGET" "KEY" "x"];
        "+hdel" ["HDEL" "KEY" "x"];
        "+hlen" ["HLEN" "KEY"];
        "+hexists" ["HEXISTS" "KEY" "x"];
        "+hscan" ["HSCAN" "KEY" "0"];
        "+hstrlen" ["HSTRLEN" "KEY" "x"];
        "+hincrby" ["HINCRBY" "KEY" "x" "1"] creates;
    Attached:
        "+pexpiretime" ["PEXPIRETIME" "KEY"];
        "+scan" ["SCAN" "0" "MATCH" "NONE" "COUNT" "1"];
        "+hkeys" ["HKEYS" "KEY"];
        "+hgetall" ["HGETALL" "KEY"];
        "+strlen" ["STRLEN" "KEY"];
        "+getrange" ["GETRANGE" "KEY" "0" "0"];
        "+dump" ["DUMP" "NONE"];
        "+restore" ["RESTORE" "KEY" "60000" "x"];
        "+llen" ["LLEN" "KEY"];
        "+scard" ["SCARD" "KEY"];
        "+xlen" ["XLEN" "KEY"];
        "+rename" ["RENAME" "NONE" "NONE"];
    Forwarding:
        "+lpush" ["LPUSH" "KEY" "x"] creates;
        "+xadd" ["XADD" "KEY" "*" "x" "x"] creates;
    Looks:
        "+info" ["INFO" "server"];
        "+role" ["ROLE"];
        "+zrank" ["ZRANK" "KEY" "x"];
};

/// Of the nodes of a cluster, besides.
pub(super) const OF_CLUSTERS: &[Right] = rights! {
    Timers:
        "+'cluster|shards'" ["CLUSTER" "SHARDS"];
        "+'cluster|myid'" ["CLUSTER" "MYID"];
};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn commands() -> BTreeSet<String> {
        let all = RIGHTS.iter().chain(OF_CLUSTERS);
        let mut commands: BTreeSet<_> =
            all.map(|right| right.rule.trim_start_matches('+').replace('\'', "")).collect();
        commands.insert("spublish".to_owned());
        commands
    }

    /// What the scripts call, read from them.
    #[test]
    fn each_command_of_a_script_is_tried() {
        let called = crate::wire::scripts::all().flat_map(|script| {
            let calls = script.text.split("call('").skip(1);
            calls.filter_map(|rest| rest.split('\'').next()).map(str::to_lowercase).collect::<Vec<_>>()
        });
        let missing: BTreeSet<_> = called.filter(|command| !commands().contains(command)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn each_command_that_is_tried_is_granted_by_our_configuration() {
        let conf = include_str!("../../../../../../redis.conf");
        let user = conf.lines().find(|line| line.starts_with("user keylapse ")).expect("our user");
        let granted: BTreeSet<_> =
            user.split([' ', '(', ')']).filter_map(|rule| rule.strip_prefix('+')).collect();
        for command in commands() {
            // What `+@connection` has.
            let by_group = ["ping", "wait"].contains(&&*command);
            assert!(granted.contains(&*command) || by_group, "{command}");
        }
    }
}
