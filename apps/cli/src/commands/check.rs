//! `keylapse check`: whether topics are as they should be, for cron, probes and alarms; and `keylapse verify`: whether index
//! and records agree.

use std::time::Duration;

use keylapse_console::{
    AlarmKind, Checked, Console, Limits, MaxUndelivered, Registry, Verified, parse_span, text,
};
use serde::Serialize;

use crate::exit::{Exit, Failed};
use crate::output::{Output, short};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Topics to look at, in place of all.
    #[arg(value_name = "TOPIC")]
    topics: Vec<String>,
    /// For how long the oldest overdue timer may have been due.
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    max_overdue: Option<Duration>,
    /// How many undelivered timers a topic may have; or how long ago the oldest of them may have been due, by its first
    /// deadline, as in 5m.
    #[arg(long, value_name = "COUNT|SPAN")]
    max_undelivered: Option<MaxUndelivered>,
    /// How many dead letters a topic may have.
    #[arg(long, value_name = "COUNT")]
    max_dead: Option<u64>,
    /// How many timers of a topic may be in quarantine.
    #[arg(long, value_name = "COUNT")]
    max_quarantined: Option<u64>,
    /// How many listeners a topic has to have.
    #[arg(long, value_name = "COUNT")]
    min_listeners: Option<usize>,
    /// Alarms that are tolerated, several with commas between: unreadable, closed, paused, unserved, held-back, failing,
    /// trimmed, different, silent, stalled. All others are looked for in any case.
    #[arg(long, value_name = "ALARM", value_delimiter = ',')]
    allow: Vec<AlarmKind>,
}

#[derive(Serialize)]
struct Sum {
    topics: usize,
    alarms: usize,
    breaches: usize,
}

pub(crate) async fn run(console: &Console, args: &Args, out: &mut Output) -> Result<Exit, Failed> {
    let limits = limits(args);
    let status = console.status_named(&args.topics).await?;
    let Checked { alarms, breaches, .. } = limits.check(&status);
    list(out, "alarm", &alarms)?;
    list(out, "breach", &breaches)?;
    let topics = status.topics.len() + status.unreadable.len();
    let sum = Sum { topics, alarms: alarms.len(), breaches: breaches.len() };
    if out.is_json() {
        out.line("checked", &sum)?;
    } else {
        out.say(format!("topics={topics} alarms={} breaches={}", alarms.len(), breaches.len()))?;
    }
    match (topics == 0, breaches.is_empty() && alarms.is_empty()) {
        (true, _) => Err(Failed::no_topics(console.namespace())),
        (false, true) => Ok(Exit::Fine),
        (false, false) => Ok(Exit::Findings),
    }
}

/// Writes one line for each.
fn list(out: &mut Output, kind: &str, all: &[impl Serialize + ToString]) -> Result<(), Failed> {
    all.iter().try_for_each(|one| if out.is_json() { out.line(kind, one) } else { out.say(one.to_string()) })
}

fn limits(args: &Args) -> Limits {
    Limits::default()
        .allow(args.allow.clone())
        .overdue(args.max_overdue)
        .undelivered(args.max_undelivered)
        .dead(args.max_dead)
        .quarantined(args.max_quarantined)
        .listeners(args.min_listeners)
}

#[derive(clap::Args, Debug)]
pub(crate) struct VerifyArgs {
    /// Topics to look at, in place of all.
    #[arg(value_name = "TOPIC")]
    topics: Vec<String>,
}

#[derive(Serialize)]
struct OfTopic<'a> {
    topic: &'a str,
    #[serde(flatten)]
    verified: &'a Verified,
}

pub(crate) async fn verify(console: &Console, args: &VerifyArgs, out: &mut Output) -> Result<Exit, Failed> {
    let Registry { topics, unreadable, .. } = console.registered(&args.topics).await?;
    let (mut looked_at, mut faults) = (0, 0);
    for topic in &topics {
        let verified = topic.verify(|_| ()).await?;
        looked_at += verified.looked_at;
        faults += verified.faults.values().sum::<u64>();
        say(&OfTopic { topic: topic.name(), verified: &verified }, out)?;
    }
    out.unreadable(&unreadable)?;
    if !out.is_json() {
        out.say(format!("topics={} looked_at={looked_at} faults={faults}", topics.len()))?;
    }
    match (topics.is_empty() && unreadable.is_empty(), faults + unreadable.len() as u64) {
        (true, _) => Err(Failed::no_topics(console.namespace())),
        (false, 0) => Ok(Exit::Fine),
        (false, _) => Ok(Exit::Findings),
    }
}

fn say(of: &OfTopic<'_>, out: &mut Output) -> Result<(), Failed> {
    if out.is_json() {
        return out.line("verified", of);
    }
    for (what, faults) in &of.verified.faults {
        out.say(format!("{}: {what}: {faults}", of.topic))?;
    }
    for fault in &of.verified.named {
        out.say(format!("  {} {}", fault.what, short(&text::escape(&fault.key), 200)))?;
    }
    Ok(())
}
