//! `keylapse show`: prints all that is kept of a key. `keylapse why`: explains why its timer has run, will run, or does not
//! run now.

use keylapse_console::format::brief;
use keylapse_console::{Console, Entry, KeyExplanation, text};

use crate::commands::target::{key, no_topic_of};
use crate::exit::{CliError, Exit};
use crate::output::{Output, ago, moment, ms_of, short, size};

/// Bytes of a payload that are shown.
const SHOWN: usize = 1 << 20;

#[derive(clap::Args, Debug)]
pub(crate) struct ShowArgs {
    /// The key, as it is printed.
    key: String,
    /// Print the payload, up to 1 MiB. It may hold secrets.
    #[arg(long)]
    payloads: bool,
}

pub(crate) async fn show(console: &Console, args: &ShowArgs, out: &mut Output) -> Result<Exit, CliError> {
    let (key, payload) = (key(&args.key)?, args.payloads.then_some(SHOWN));
    let mut entries = Vec::new();
    let topics = console.topics_of(&key).await?;
    if topics.is_empty() {
        return Err(no_topic_of(console, &key).await?);
    }
    for topic in topics {
        entries.extend(topic.timer(&key, payload).await?);
        entries.extend(topic.tracked_key(&key).await?);
        entries.extend(topic.dead_letters_of_key(&key, payload).await?);
    }
    for entry in &entries {
        if out.is_json() {
            out.line("entry", entry)?;
        } else {
            show_entry(entry, out)?;
        }
    }
    if entries.is_empty() {
        let key = text::escape(&key);
        let why = text::quoted(&key);
        return Err(CliError::Findings(format!(
            "nothing is kept of {key}: `keylapse why {why}` explains why"
        )));
    }
    Ok(Exit::Success)
}

fn show_entry(entry: &Entry, out: &mut Output) -> Result<(), CliError> {
    let mut field = |name: &str, value: String| out.print_line(format!("{name:<14}{value}"));
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
    // The newest failure comes first, as it usually matters most.
    for failed in entry.failures.iter().rev() {
        let at = moment(ms_of(failed.at));
        let (attempt, kind, error) = (failed.attempt, short(&failed.kind, 20), short(&failed.error, 512));
        field("failed", format!("{at}  attempt {attempt}: {kind}: {error}"))?;
    }
    out.print_line("")
}

#[derive(clap::Args, Debug)]
pub(crate) struct WhyArgs {
    /// The key, as it is printed.
    key: String,
}

pub(crate) async fn why(console: &Console, args: &WhyArgs, out: &mut Output) -> Result<Exit, CliError> {
    let key = key(&args.key)?;
    let all = console.explain_key(&key).await?;
    if all.is_empty() {
        return Err(no_topic_of(console, &key).await?);
    }
    for why in &all {
        if out.is_json() {
            out.line("why", why)?;
        } else {
            show_why(why, out)?;
        }
    }
    let found = all
        .iter()
        .any(|why| why.timer.is_some() || why.tracked_key.is_some() || !why.dead_letters.is_empty());
    Ok(if found { Exit::Success } else { Exit::ProblemsFound })
}

fn show_why(why: &KeyExplanation, out: &mut Output) -> Result<(), CliError> {
    out.print_line(format!("{}  (topic {})", text::escape(&why.key), why.topic))?;
    for moment_of in &why.timeline {
        let (at, since) = (moment(moment_of.at_ms), ago(moment_of.at_ms, why.now_ms));
        out.print_line(format!("  {at}  {since:<14}  {}", short(&moment_of.event, 600)))?;
    }
    if let Some(ms) = why.undelivered_ms {
        out.print_line(format!("late:     undelivered for {}, by its first deadline", brief(ms)))?;
    }
    out.print_line(format!("next:     {}", why.next))?;
    for reason in &why.blocked_by {
        out.print_line(format!("not now:  {}", short(reason, 300)))?;
    }
    for who in &why.served_by {
        out.print_line(format!("by:       {}", short(who, 200)))?;
    }
    out.print_line("")
}
