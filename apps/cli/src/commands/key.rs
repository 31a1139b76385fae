//! `keylapse show`: all that is kept of a key; and `keylapse why`: why its timer has run, will run, or does not run now.

use keylapse_console::words::brief;
use keylapse_console::{Console, Entry, Why, text};

use crate::commands::target::{key, no_topic_of};
use crate::exit::{Exit, Failed};
use crate::output::{Output, ago, moment, ms_of, short, size};

/// Bytes of a payload that are shown.
const SHOWN: usize = 1 << 20;

#[derive(clap::Args, Debug)]
pub(crate) struct ShowArgs {
    /// The key, written as it is shown.
    key: String,
    /// Show the payload, which may hold secrets: up to 1 MiB.
    #[arg(long)]
    payloads: bool,
}

pub(crate) async fn show(console: &Console, args: &ShowArgs, out: &mut Output) -> Result<Exit, Failed> {
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
            show_entry(entry, out)?;
        }
    }
    if entries.is_empty() {
        let key = text::escape(&key);
        let why = text::quoted(&key);
        return Err(Failed::Findings(format!("nothing is kept of {key}: `keylapse why {why}` says more")));
    }
    Ok(Exit::Fine)
}

fn show_entry(entry: &Entry, out: &mut Output) -> Result<(), Failed> {
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

#[derive(clap::Args, Debug)]
pub(crate) struct WhyArgs {
    /// The key, written as it is shown.
    key: String,
}

pub(crate) async fn why(console: &Console, args: &WhyArgs, out: &mut Output) -> Result<Exit, Failed> {
    let key = key(&args.key)?;
    let all = console.why(&key).await?;
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
    let found =
        all.iter().any(|why| why.timer.is_some() || why.enrolled.is_some() || !why.letters.is_empty());
    Ok(if found { Exit::Fine } else { Exit::Findings })
}

fn show_why(why: &Why, out: &mut Output) -> Result<(), Failed> {
    out.say(format!("{}  (topic {})", text::escape(&why.key), why.topic))?;
    for moment_of in &why.timeline {
        let (at, since) = (moment(moment_of.at_ms), ago(moment_of.at_ms, why.now_ms));
        out.say(format!("  {at}  {since:<14}  {}", short(&moment_of.what, 600)))?;
    }
    if let Some(ms) = why.undelivered_ms {
        out.say(format!("late:     undelivered for {}, by its first deadline", brief(ms)))?;
    }
    out.say(format!("next:     {}", why.next))?;
    for reason in &why.not_now {
        out.say(format!("not now:  {}", short(reason, 300)))?;
    }
    for who in &why.served_by {
        out.say(format!("by:       {}", short(who, 200)))?;
    }
    out.say("")
}
