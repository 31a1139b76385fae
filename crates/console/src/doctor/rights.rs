//! Checks the user's permissions, command by command.
//!
//! `ACL DRYRUN` shows them if the user may call it. Otherwise each command is tried. The server checks permissions first, so
//! a command that fails for another reason is allowed. The trial writes one string with a TTL.

use std::collections::BTreeSet;

use keylapse_connection::{Cmd, Value, cmd, pipe};

use crate::counted;
use crate::error::{ErrorKind, Result};
use crate::escape::escape_line;

use super::codes::{self, Code};
use super::examination::ServerExamination;

/// The purpose of a permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// All timers.
    Timers,
    /// Expired events.
    Events,
    /// Notices of new timers.
    WakeUps,
    /// Attached topics.
    Attached,
    /// Forwarding of due timers to lists and streams.
    Forwarding,
    /// Reading of settings.
    Settings,
}

/// A refusal of the server.
#[derive(Clone, Debug)]
pub(super) struct MissingRight {
    pub(super) need: Need,
    /// True if the refusal concerns a key instead of a command or a channel.
    is_of_keys: bool,
    /// The ACL rules that grant the permission.
    pub(super) rules: String,
    refusal: String,
}

impl MissingRight {
    pub(super) fn new(need: Need, rules: &str, refusal: &str) -> Self {
        Self { need, is_of_keys: is_of_keys(refusal), rules: rules.to_owned(), refusal: refusal.to_owned() }
    }
}

/// Reads the text of a refusal, because servers have no codes for the difference. The texts are: "no permissions to run the
/// 'get' command", "… to access one of the keys used as arguments", "… to access the 'a' channel".
fn is_of_keys(refusal: &str) -> bool {
    refusal.contains(" key") && !refusal.contains("to run") && !refusal.contains(" channel")
}

pub(super) async fn check(case: &mut ServerExamination) -> Result<()> {
    let rights: Vec<_> = RIGHTS.iter().chain(if case.is_of_cluster() { OF_CLUSTERS } else { &[] }).collect();
    let how = if has_dry_run(case).await? {
        ask_dry(case, &rights).await?;
        "ACL DRYRUN"
    } else {
        let rights = harmless(case, rights).await?;
        try_each(case, &rights).await?;
        "trying each command"
    };
    report(case, how);
    Ok(())
}

/// Returns whether the user may call `ACL DRYRUN`.
async fn has_dry_run(case: &ServerExamination) -> Result<bool> {
    let ask = dry_run(case, &["PING".to_owned()]);
    Ok(case.ask("reading permissions", &ask).await?.is_ok())
}

async fn ask_dry(case: &mut ServerExamination, rights: &[&Right]) -> Result<()> {
    let mut commands = pipe();
    for right in rights {
        commands.add_command(dry_run(case, &words_of(case, right.words)));
    }
    let answers = case.ask_each("reading permissions", &commands).await?;
    for (right, answer) in rights.iter().zip(answers) {
        // An error means that the server does not have the command, which is no missing permission.
        if let Ok(Value::BulkString(refusal)) = answer {
            let refusal = escape_line(&String::from_utf8_lossy(&refusal), 200);
            case.refusals.push(MissingRight::new(right.need, right.rule, &refusal));
        }
    }
    Ok(())
}

fn dry_run(case: &ServerExamination, words: &[String]) -> Cmd {
    cmd("ACL").arg("DRYRUN").arg(&case.user).arg(words).clone()
}

/// Leaves out commands that would create a key, unless the guard prevents that or the server refuses writes.
async fn harmless<'a>(case: &ServerExamination, rights: Vec<&'a Right>) -> Result<Vec<&'a Right>> {
    let refuses_writes = case.info.is_replica() && case.info.get("slave_read_only") == Some("1");
    let is_safe = refuses_writes
        || case.takes_writes() && case.ask("checking permissions", &guard(case)).await?.is_ok();
    Ok(rights.into_iter().filter(|right| is_safe || !right.creates).collect())
}

async fn try_each(case: &mut ServerExamination, rights: &[&Right]) -> Result<()> {
    let mut commands = pipe();
    // The first guard may have expired.
    commands.add_command(guard(case));
    for right in rights {
        let mut command = Cmd::new();
        command.arg(words_of(case, right.words));
        commands.add_command(command);
    }
    let answers = case.ask_each("checking permissions", &commands).await?;
    for (right, answer) in rights.iter().zip(answers.into_iter().skip(1)) {
        if let Err(error) = answer {
            let refusal = error.to_string();
            // The server refuses EXEC with EXECABORT, whose text contains NOPERM.
            if error.kind() == ErrorKind::Permission || refusal.contains(" NOPERM ") {
                case.refusals.push(MissingRight::new(right.need, right.rule, &refusal));
            }
        }
    }
    // A refusal does no harm, because the guard also expires.
    case.ask("checking permissions", cmd("DEL").arg(case.key("right"))).await.map(drop)
}

/// Returns the command that writes a string with a TTL. Commands for other types fail on it.
fn guard(case: &ServerExamination) -> Cmd {
    cmd("SET").arg(case.key("right")).arg("x").arg("PX").arg(60_000).clone()
}

fn words_of(case: &ServerExamination, words: &[&str]) -> Vec<String> {
    let named = words.iter().map(|word| match *word {
        "KEY" => case.key("right"),
        "NONE" => case.key("none"),
        word => word.to_owned(),
    });
    named.collect()
}

/// Adds one finding for each purpose, with all missing rules.
fn report(case: &mut ServerExamination, how: &str) {
    let refusals = std::mem::take(&mut case.refusals);
    let (keys, others): (Vec<_>, Vec<_>) =
        refusals.into_iter().partition(|refusal: &MissingRight| refusal.is_of_keys);
    if let Some(first) = keys.first() {
        let refused = counted(keys.len() as u64, "refused command");
        case.add_finding(&codes::KEYS_REFUSED, format!("{refused}, the first: {}", first.refusal));
    }
    for (need, code) in [
        (Need::Timers, codes::COMMANDS_REFUSED),
        (Need::Events, codes::EVENTS_REFUSED),
        (Need::WakeUps, codes::WAKE_UPS_REFUSED),
        (Need::Attached, codes::ATTACHED_REFUSED),
        (Need::Settings, codes::LOOKS_REFUSED),
        (Need::Forwarding, codes::FORWARDING_REFUSED),
    ] {
        add_finding_of(case, &code, others.iter().filter(|refusal| refusal.need == need));
    }
    let bad = [codes::COMMANDS_REFUSED, codes::KEYS_REFUSED, codes::EVENTS_REFUSED, codes::WAKE_UPS_REFUSED];
    if !case.has_finding(&bad) {
        let user = case.user.clone();
        case.add_finding(&codes::RIGHTS_FINE, format!("user {user}, checked by {how}"));
    }
}

fn add_finding_of<'a>(
    case: &mut ServerExamination,
    code: &Code,
    refusals: impl Iterator<Item = &'a MissingRight>,
) {
    let refusals: Vec<_> = refusals.collect();
    let Some(first) = refusals.first() else { return };
    let mut rules: Vec<_> = refusals.iter().flat_map(|refusal| refusal.rules.split(' ')).collect();
    // Several refusals can need the same rule for a channel.
    let mut seen = BTreeSet::new();
    rules.retain(|rule| seen.insert(*rule));
    let rules = rules.join(" ");
    case.add_finding_with(code, format!("the user lacks {rules}: {}", first.refusal), &[("rules", &rules)]);
}

/// A command, and the ACL rule that grants it.
struct Right {
    need: Need,
    rule: &'static str,
    /// The words of the command. `KEY` is the key of the guard, so commands for other types fail. `NONE` is a key that does
    /// not exist.
    words: &'static [&'static str],
    /// True if the command creates `KEY` when the guard is missing.
    creates: bool,
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

/// The commands that are tried in one request. A refused EXEC also ends the transaction that MULTI has started.
const RIGHTS: &[Right] = rights! {
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
    Settings:
        "+info" ["INFO" "server"];
        "+role" ["ROLE"];
        "+zrank" ["ZRANK" "KEY" "x"];
};

/// The additional commands for nodes of a cluster.
const OF_CLUSTERS: &[Right] = rights! {
    Timers:
        "+'cluster|shards'" ["CLUSTER" "SHARDS"];
        "+'cluster|myid'" ["CLUSTER" "MYID"];
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers of Redis 7.0 and 8.2 and Valkey 9.1 to a command and to ACL DRYRUN.
    #[test]
    fn refusals_of_keys_are_recognized() {
        for (said, is_of_key) in [
            ("NOPERM this user has no permissions to run the 'hkeys' command", false),
            ("User keylapse has no permissions to run the 'script|load' command", false),
            ("NOPERM this user has no permissions to access one of the keys used as arguments", true),
            ("NOPERM No permissions to access a key", true),
            ("User u has no permissions to access the 'k' key", true),
            ("NOPERM this user has no permissions to access one of the channels used as arguments", false),
            ("NOPERM No permissions to access a channel", false),
        ] {
            assert_eq!(is_of_keys(said), is_of_key, "{said}");
        }
    }

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
        let conf = include_str!("../../../../redis.conf");
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
