//! `keylapse arm`: arm a timer.

use std::path::PathBuf;

use keylapse::When;
use keylapse_console::{Became, Console};
use keylapse_web::parse_when;
use serde::Serialize;

use crate::commands::target::{key, topic_of};
use crate::exit::{Exit, Failed};
use crate::output::{Output, moment, ms_of};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
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

/// As JSON.
#[derive(Serialize)]
struct Armed<'a> {
    topic: &'a str,
    key: &'a str,
    outcome: &'a str,
    id: Option<String>,
    deadline_ms: Option<u64>,
}

pub(crate) async fn run(console: &Console, args: &Args, out: &mut Output) -> Result<Exit, Failed> {
    let key = key(&args.key)?;
    let topic = topic_of(console, &key, args.topic.as_deref()).await?;
    let payload = match &args.payload_file {
        Some(file) => std::fs::read(file)
            .map_err(|error| Failed::Usage(format!("the payload in {}: {error}", file.display())))?,
        None => args.payload.clone().into_bytes(),
    };
    let arming = topic.arm(&key, args.when, payload.into(), args.only_if_absent).await?;
    let Became { code: outcome, says, .. } = Became::of_arm(&arming);
    let receipt = arming.receipt();
    let deadline_ms = receipt.map(|receipt| ms_of(receipt.deadline));
    let id = receipt.map(|receipt| receipt.id.to_string());
    if out.is_json() {
        out.line("armed", &Armed { topic: topic.name(), key: &args.key, outcome, id, deadline_ms })?;
    } else {
        let due = deadline_ms.map_or_else(String::new, |at| format!(", due at {}", moment(at)));
        let id = id.map_or_else(String::new, |id| format!(", id {id}"));
        out.say(format!("{}: {says}{due}{id}", args.key))?;
    }
    Ok(if receipt.is_some() { Exit::Fine } else { Exit::Findings })
}
