//! `keylapse show`: all that is kept of a key.

use keylapse_console::{Console, Entry, text};

use crate::commands::target::{key, no_topic_of};
use crate::exit::{Exit, Failed};
use crate::output::{Output, moment, ms_of, short, size};

/// Bytes of a payload that are shown.
const SHOWN: usize = 1 << 20;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The key, written as it is shown.
    key: String,
    /// Show the payload, which may hold secrets: up to 1 MiB.
    #[arg(long)]
    payloads: bool,
}

pub(crate) async fn run(console: &Console, args: &Args, out: &mut Output) -> Result<Exit, Failed> {
    let (key, payload) = (key(&args.key)?, args.payloads.then_some(SHOWN));
    let mut entries = Vec::new();
    let topics = console.topics_of(&key).await?;
    if topics.is_empty() {
        return Err(no_topic_of(console, &key).await?);
    }
    for topic in topics {
        entries.extend(topic.timer(&key, payload).await?);
        entries.extend(topic.enrolment(&key).await?);
        entries.extend(topic.letters_of(&key, payload).await?);
    }
    for entry in &entries {
        if out.is_json() {
            out.line("entry", entry)?;
        } else {
            show(entry, out)?;
        }
    }
    if entries.is_empty() {
        let key = text::escape(&key);
        let why = text::quoted(&key);
        return Err(Failed::Findings(format!("nothing is kept of {key}: `keylapse why {why}` says more")));
    }
    Ok(Exit::Fine)
}

fn show(entry: &Entry, out: &mut Output) -> Result<(), Failed> {
    let mut field = |name: &str, value: String| out.say(format!("{name:<14}{value}"));
    field("key", text::escape(&entry.key))?;
    field("topic", format!("{}, partition {}", entry.topic, entry.partition))?;
    field("state", entry.state.as_str().to_owned())?;
    if let Some(id) = entry.id {
        field("id", id.to_string())?;
    }
    field("at", moment(entry.at_ms))?;
    if let Some(deadline) = entry.deadline_ms {
        field("deadline", moment(deadline))?;
    }
    field("attempt", entry.attempt.to_string())?;
    field("lost leases", entry.lost_leases.to_string())?;
    field("snoozes", entry.snoozes.to_string())?;
    if let Some(reason) = entry.reason {
        field("reason", reason.as_str().to_owned())?;
    }
    field("payload", size(entry.payload_bytes))?;
    if let Some(payload) = &entry.payload {
        field("", text::escape(payload))?;
    }
    // The newest first: it is mostly the one that is looked for.
    for failed in entry.failures.iter().rev() {
        let at = moment(ms_of(failed.at));
        let (attempt, kind, error) = (failed.attempt, short(&failed.kind, 20), short(&failed.error, 512));
        field("failed", format!("{at}  attempt {attempt}: {kind}: {error}"))?;
    }
    out.say("")
}
