//! `keylapse arm`, and actions on one or many timers: `cancel`, `reschedule` and `run-now`.

use std::path::PathBuf;

use keylapse::When;
use keylapse_console::{Action, Console};
use keylapse_web::parse_when;

use crate::args::TargetArgs;
use crate::commands::target::{key, topic_of};
use crate::exit::{CliError, Exit};
use crate::output::{Output, moment};

#[derive(clap::Args, Debug)]
pub(crate) struct ArmArgs {
    /// The key, as it is printed.
    key: String,
    /// Set the deadline: a span such as 15m, or 2026-11-25T09:30:00Z.
    #[arg(long, value_name = "WHEN", value_parser = parse_when)]
    when: When,
    /// Set the payload, as the programs of the topic encode it: usually JSON.
    ///
    /// Other users can see it in the list of processes.
    #[arg(long, value_name = "TEXT", default_value = "null", conflicts_with = "payload_file")]
    payload: String,
    /// Read the payload from this file.
    #[arg(long, value_name = "FILE")]
    payload_file: Option<PathBuf>,
    /// Keep an existing timer of the key as it is.
    #[arg(long)]
    only_if_absent: bool,
    /// Choose the topic, if patterns of several topics match the key.
    #[arg(long, value_name = "NAME")]
    topic: Option<String>,
}

#[derive(clap::Args, Debug)]
pub(crate) struct RescheduleArgs {
    /// Set the new deadline: a span such as 15m, or 2026-11-25T09:30:00Z.
    #[arg(long, value_name = "WHEN", value_parser = parse_when)]
    to: When,
    #[command(flatten)]
    targets: TargetArgs,
}

pub(crate) async fn arm(console: &Console, args: &ArmArgs, out: &mut Output) -> Result<Exit, CliError> {
    let key = key(&args.key)?;
    let topic = topic_of(console, &key, args.topic.as_deref()).await?;
    let payload = match &args.payload_file {
        Some(file) => std::fs::read(file).map_err(|error| {
            CliError::Usage(format!("cannot read the payload from {}: {error}", file.display()))
        })?,
        None => args.payload.clone().into_bytes(),
    };
    let mut done = topic.arm(&key, args.when, payload.into(), args.only_if_absent).await?;
    if out.is_json() {
        // The key is printed as it was written.
        done.key = Some(args.key.clone());
        out.line("armed", &done.armed())?;
    } else {
        let due = done.deadline_ms.map_or_else(String::new, |at| format!(", due at {}", moment(at)));
        let id = done.id.map_or_else(String::new, |id| format!(", id {id}"));
        out.print_line(format!("{}: {}{due}{id}", args.key, done.message))?;
    }
    Ok(if done.done { Exit::Success } else { Exit::ProblemsFound })
}

pub(crate) async fn cancel(console: &Console, args: &TargetArgs, out: &mut Output) -> Result<Exit, CliError> {
    args.act(console, Action::Cancel, out).await
}

pub(crate) async fn reschedule(
    console: &Console,
    args: &RescheduleArgs,
    out: &mut Output,
) -> Result<Exit, CliError> {
    args.targets.act(console, Action::Reschedule(args.to), out).await
}

pub(crate) async fn run_now(
    console: &Console,
    args: &TargetArgs,
    out: &mut Output,
) -> Result<Exit, CliError> {
    args.act(console, Action::RunNow, out).await
}
