//! `keylapse arm`, and what is done to the timer of a key, or to many: `cancel`, `reschedule`, `run-now`.

use std::path::PathBuf;

use keylapse::When;
use keylapse_console::{Action, Console};
use keylapse_web::parse_when;

use crate::args::Targets;
use crate::commands::target::{key, topic_of};
use crate::exit::{Exit, Failed};
use crate::output::{Output, moment};

#[derive(clap::Args, Debug)]
pub(crate) struct ArmArgs {
    /// The key, written as it is shown.
    key: String,
    /// After a span from now, such as 15m; or at a time, such as 2026-11-25T09:30:00Z.
    #[arg(long, value_name = "WHEN", value_parser = parse_when)]
    when: When,
    /// The payload, as the topic's programs write it: mostly JSON. It can be seen in the list of processes.
    #[arg(long, value_name = "TEXT", default_value = "null", conflicts_with = "payload_file")]
    payload: String,
    /// A file with the payload.
    #[arg(long, value_name = "FILE")]
    payload_file: Option<PathBuf>,
    /// Leave a timer alone that is there.
    #[arg(long)]
    only_if_absent: bool,
    /// The topic, where several have patterns that match the key.
    #[arg(long, value_name = "NAME")]
    topic: Option<String>,
}

#[derive(clap::Args, Debug)]
pub(crate) struct RescheduleArgs {
    /// After a span from now, such as 15m; or at a time, such as 2026-11-25T09:30:00Z.
    #[arg(long, value_name = "WHEN", value_parser = parse_when)]
    to: When,
    #[command(flatten)]
    targets: Targets,
}

pub(crate) async fn arm(console: &Console, args: &ArmArgs, out: &mut Output) -> Result<Exit, Failed> {
    let key = key(&args.key)?;
    let topic = topic_of(console, &key, args.topic.as_deref()).await?;
    let payload = match &args.payload_file {
        Some(file) => std::fs::read(file)
            .map_err(|error| Failed::Usage(format!("the payload in {}: {error}", file.display())))?,
        None => args.payload.clone().into_bytes(),
    };
    let mut done = topic.arm(&key, args.when, payload.into(), args.only_if_absent).await?;
    if out.is_json() {
        // As it was written.
        done.key = Some(args.key.clone());
        out.line("armed", &done.armed())?;
    } else {
        let due = done.deadline_ms.map_or_else(String::new, |at| format!(", due at {}", moment(at)));
        let id = done.id.map_or_else(String::new, |id| format!(", id {id}"));
        out.say(format!("{}: {}{due}{id}", args.key, done.says))?;
    }
    Ok(if done.was_done { Exit::Fine } else { Exit::Findings })
}

pub(crate) async fn cancel(console: &Console, args: &Targets, out: &mut Output) -> Result<Exit, Failed> {
    args.act(console, Action::Cancel, out).await
}

pub(crate) async fn reschedule(
    console: &Console,
    args: &RescheduleArgs,
    out: &mut Output,
) -> Result<Exit, Failed> {
    args.targets.act(console, Action::Reschedule(args.to), out).await
}

pub(crate) async fn run_now(console: &Console, args: &Targets, out: &mut Output) -> Result<Exit, Failed> {
    args.act(console, Action::RunNow, out).await
}
