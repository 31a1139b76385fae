//! What the user may do, command by command.
//!
//! ACL DRYRUN says it, where that is allowed. Elsewhere each command is tried: rights are looked at before anything else,
//! so one that then fails for another reason is allowed. What is written is one text with a time to live.

mod refusal;
mod table;

pub(in crate::console::doctor) use self::refusal::{Need, Refusal};

use redis::{Cmd, Pipeline, Value, cmd, pipe};

use crate::error::{ErrorKind, Result};
use crate::escape::plain;

use super::super::case::Case;
use table::{OF_CLUSTERS, RIGHTS, Right};

pub(super) async fn check(case: &mut Case) -> Result<()> {
    let rights: Vec<_> = RIGHTS.iter().chain(if case.patient.of_cluster { OF_CLUSTERS } else { &[] }).collect();
    let how = if let Some(user) = knows_dry_run(case).await? {
        case.patient.user = refusal::quoted(&user);
        ask_dry(case, &user, &rights).await?;
        "ACL DRYRUN"
    } else {
        let rights = harmless(case, rights).await?;
        try_each(case, &rights).await?;
        "trying"
    };
    refusal::report(case, how);
    Ok(())
}

/// The user's name, if DRYRUN may be asked.
async fn knows_dry_run(case: &Case) -> Result<Option<String>> {
    let Ok(name) = case.ask("asking for the user", cmd("ACL").arg("WHOAMI")).await? else { return Ok(None) };
    let name: String = redis::from_redis_value(name).unwrap_or_default();
    let asked = case.ask("asking for rights", cmd("ACL").arg("DRYRUN").arg(&name).arg("PING")).await?;
    Ok(asked.is_ok().then_some(name))
}

async fn ask_dry(case: &mut Case, user: &str, rights: &[&Right]) -> Result<()> {
    let mut commands = pipe();
    for right in rights {
        let words = case_words(case, right.words);
        commands.cmd("ACL").arg("DRYRUN").arg(user).arg(&words);
    }
    commands.cmd("ACL").arg("DRYRUN").arg(user).arg("MULTI");
    let mut answers = case.ask_each("asking for rights", &commands).await?.into_iter();
    for (need, rule) in rights.iter().map(|right| (right.need, right.rule)).chain([(Need::Timers, "+multi")]) {
        // An error means that there is no such command, which is no matter of rights.
        if let Some(Ok(Value::BulkString(said))) = answers.next() {
            case.refusals.push(Refusal::new(need, rule, &plain(&String::from_utf8_lossy(&said), 200)));
        }
    }
    Ok(())
}

/// Leaves out what would make a key, unless a text of ours stands in its way, or the server takes no writes.
async fn harmless<'a>(case: &Case, rights: Vec<&'a Right>) -> Result<Vec<&'a Right>> {
    let refuses_writes = case.info.is_replica() && case.info.get("slave_read_only") == Some("1");
    let is_safe = refuses_writes || case.takes_writes() && case.ask("trying rights", &guard(case)).await?.is_ok();
    Ok(rights.into_iter().filter(|right| is_safe || !right.creates).collect())
}

async fn try_each(case: &mut Case, rights: &[&Right]) -> Result<()> {
    let mut commands = pipe();
    // Once more: time may have passed.
    commands.add_command(guard(case));
    for right in rights {
        let mut command = Cmd::new();
        command.arg(&case_words(case, right.words));
        commands.add_command(command);
    }
    let answers = case.ask_each("trying rights", &commands).await?;
    for (right, answer) in rights.iter().zip(answers.into_iter().skip(1)) {
        case.note(right.need, right.rule, answer);
    }
    try_multi(case).await?;
    // It would expire by itself.
    case.ask("trying rights", cmd("DEL").arg(case.patient.key("right"))).await.map(drop)
}

/// A connection on which EXEC is refused would not get out of it.
async fn try_multi(case: &mut Case) -> Result<()> {
    if case.refusals.iter().any(|refusal| refusal.rules == "+exec") {
        return Ok(());
    }
    let mut commands: Pipeline = pipe();
    commands.cmd("MULTI").cmd("EXEC");
    let mut answers = case.ask_each("trying rights", &commands).await?;
    case.note(Need::Timers, "+multi", answers.swap_remove(0));
    Ok(())
}

/// A text with a time to live, where commands for other types come upon it.
fn guard(case: &Case) -> Cmd {
    cmd("SET").arg(case.patient.key("right")).arg("x").arg("PX").arg(60_000).clone()
}

fn case_words(case: &Case, words: &[&str]) -> Vec<String> {
    let named = words.iter().map(|word| match *word {
        "KEY" => case.patient.key("right"),
        "NONE" => case.patient.key("none"),
        word => word.to_owned(),
    });
    named.collect()
}

impl Case {
    /// Keeps a refusal, if it is one.
    fn note(&mut self, need: Need, rule: &str, answer: Result<Value>) {
        if let Err(error) = answer
            && error.kind() == ErrorKind::Permission
        {
            self.refusals.push(Refusal::new(need, rule, &error.to_string()));
        }
    }
}
