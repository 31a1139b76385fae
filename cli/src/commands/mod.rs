//! The commands, one a file: what each can be told, and what it does.

pub(crate) mod arm;
pub(crate) mod attach;
pub(crate) mod bulk;
pub(crate) mod cancel;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod dead;
pub(crate) mod destroy;
pub(crate) mod doctor;
pub(crate) mod journal;
pub(crate) mod listeners;
pub(crate) mod ls;
mod outcome;
pub(crate) mod partitions;
pub(crate) mod pause;
pub(crate) mod reschedule;
pub(crate) mod run_now;
pub(crate) mod show;
pub(crate) mod status;
pub(crate) mod tail;
mod target;
pub(crate) mod top;
pub(crate) mod topics;
pub(crate) mod transfer;
pub(crate) mod verify;
pub(crate) mod why;

use keylapse::console::{Console, KnownTopic};
use serde::Serialize;

use crate::args::{Cli, Command};
use crate::exit::{Exit, Failed};
use crate::output::Output;

/// Does what the command line says.
pub(crate) async fn run(cli: Cli, out: &mut Output) -> Result<Exit, Failed> {
    match &cli.command {
        Command::Completions(args) => return completions::write(args, out),
        Command::Man(args) => return completions::write_man(args, out),
        Command::Top(args) => return top::run(&cli, args).await,
        _ => {}
    }
    if let Command::Doctor(args) = &cli.command {
        // A server that cannot be reached is one of its findings.
        return doctor::run(&Console::new(cli.connect.client()?), args, out).await;
    }
    let console = cli.connect.console().await?;
    let exit = match cli.command {
        Command::Status(args) => status::run(&console, &args, out).await,
        Command::Topics => topics::run(&console, out).await,
        Command::Listeners => listeners::run(&console, out).await,
        Command::Ls(args) => ls::run(&console, &args, out).await,
        Command::Show(args) => show::run(&console, &args, out).await,
        Command::Why(args) => why::run(&console, &args, out).await,
        Command::Journal(args) => journal::run(&console, &args, out).await,
        Command::Tail(args) => tail::run(&console, &args, out).await,
        Command::Arm(args) => arm::run(&console, &args, out).await,
        Command::Cancel(args) => cancel::run(&console, &args, out).await,
        Command::Reschedule(args) => reschedule::run(&console, &args, out).await,
        Command::RunNow(args) => run_now::run(&console, &args, out).await,
        Command::Dead(args) => dead::run(&console, &args, out).await,
        Command::Pause(args) => pause::pause(&console, &args, out).await,
        Command::Resume(args) => pause::resume(&console, &args, out).await,
        Command::Partitions(args) => partitions::run(&console, &args, out).await,
        Command::Destroy(args) => destroy::destroy(&console, &args, out).await,
        Command::Detach(args) => destroy::detach(&console, &args, out).await,
        Command::Check(args) => check::run(&console, &args, out).await,
        Command::Verify(args) => verify::run(&console, &args, out).await,
        Command::Attach(args) => attach::run(&console, &args, out).await,
        Command::Export(args) => transfer::export(&console, &args, out).await,
        Command::Import => transfer::import(&console, out).await,
        Command::Completions(_) | Command::Man(_) | Command::Doctor(_) | Command::Top(_) => Ok(Exit::Fine),
    };
    out.flush()?;
    exit
}

/// What was done to a topic, or to one of its timers.
#[derive(Serialize)]
struct Did<'a> {
    topic: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    outcome: &'a str,
    says: &'a str,
}

impl Did<'_> {
    fn say(&self, out: &mut Output) -> Result<(), Failed> {
        if out.is_json() {
            return out.line("did", self);
        }
        let Self { topic, key, says, .. } = self;
        out.say(format!("{}: {says}", key.as_deref().unwrap_or(topic)))
    }
}

/// Says what was done to a topic.
fn say_of_topic(topic: &KnownTopic, outcome: &str, says: &str, out: &mut Output) -> Result<Exit, Failed> {
    Did { topic: topic.name(), key: None, outcome, says }.say(out)?;
    Ok(Exit::Fine)
}
