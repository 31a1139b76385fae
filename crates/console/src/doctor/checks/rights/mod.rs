//! What the user may do, command by command.
//!
//! ACL DRYRUN says it, where that is allowed. Elsewhere each command is tried: rights are looked at before anything else,
//! so one that then fails for another reason is allowed. What is written is one text with a time to live.

mod report;
mod table;

use keylapse_connection::{Cmd, Value, cmd, pipe};

use crate::error::{ErrorKind, Result};
use crate::escape::plain;

use crate::doctor::case::Case;
use crate::doctor::refusal::{Need, Refusal};

use self::table::{OF_CLUSTERS, RIGHTS, Right};

pub(super) async fn check(case: &mut Case) -> Result<()> {
    let rights: Vec<_> =
        RIGHTS.iter().chain(if case.patient.is_of_cluster() { OF_CLUSTERS } else { &[] }).collect();
    let how = if knows_dry_run(case).await? {
        ask_dry(case, &rights).await?;
        "ACL DRYRUN"
    } else {
        let rights = harmless(case, rights).await?;
        try_each(case, &rights).await?;
        "trying"
    };
    report::report(case, how);
    Ok(())
}

/// Whether this user may ask what it may do.
async fn knows_dry_run(case: &Case) -> Result<bool> {
    let ask = dry_run(case, &["PING".to_owned()]);
    Ok(case.ask("asking for rights", &ask).await?.is_ok())
}

async fn ask_dry(case: &mut Case, rights: &[&Right]) -> Result<()> {
    let mut commands = pipe();
    for right in rights {
        commands.add_command(dry_run(case, &words_of(case, right.words)));
    }
    let answers = case.ask_each("asking for rights", &commands).await?;
    for (right, answer) in rights.iter().zip(answers) {
        // An error means that there is no such command, which is no matter of rights.
        if let Ok(Value::BulkString(said)) = answer {
            let said = plain(&String::from_utf8_lossy(&said), 200);
            case.refusals.push(Refusal::new(right.need, right.rule, &said));
        }
    }
    Ok(())
}

fn dry_run(case: &Case, words: &[String]) -> Cmd {
    cmd("ACL").arg("DRYRUN").arg(&case.patient.user).arg(words).clone()
}

/// Leaves out what would make a key, unless a text of ours stands in its way, or the server takes no writes.
async fn harmless<'a>(case: &Case, rights: Vec<&'a Right>) -> Result<Vec<&'a Right>> {
    let refuses_writes = case.info.is_replica() && case.info.get("slave_read_only") == Some("1");
    let is_safe =
        refuses_writes || case.takes_writes() && case.ask("trying rights", &guard(case)).await?.is_ok();
    Ok(rights.into_iter().filter(|right| is_safe || !right.creates).collect())
}

async fn try_each(case: &mut Case, rights: &[&Right]) -> Result<()> {
    let mut commands = pipe();
    // Once more: time may have passed.
    commands.add_command(guard(case));
    for right in rights {
        let mut command = Cmd::new();
        command.arg(words_of(case, right.words));
        commands.add_command(command);
    }
    let answers = case.ask_each("trying rights", &commands).await?;
    for (right, answer) in rights.iter().zip(answers.into_iter().skip(1)) {
        case.note(right.need, right.rule, answer);
    }
    // It would expire by itself.
    case.ask("trying rights", cmd("DEL").arg(case.patient.key("right"))).await.map(drop)
}

/// A text with a time to live, where commands for other types come upon it.
fn guard(case: &Case) -> Cmd {
    cmd("SET").arg(case.patient.key("right")).arg("x").arg("PX").arg(60_000).clone()
}

fn words_of(case: &Case, words: &[&str]) -> Vec<String> {
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
        let Err(error) = answer else { return };
        let said = error.to_string();
        // EXEC is refused by EXECABORT, which says why.
        if error.kind() == ErrorKind::Permission || said.contains(" NOPERM ") {
            self.refusals.push(Refusal::new(need, rule, &said));
        }
    }
}
