//! `keylapse check`: checks topics against limits, for cron, probes and alerts. `keylapse verify`: verifies that the index
//! and the records agree.

use std::time::Duration;

use keylapse_console::{
    AlarmKind, CheckReport, Console, Limits, MaxUndelivered, Registry, VerifyReport, parse_span, text,
};
use serde::Serialize;

use crate::exit::{CliError, Exit};
use crate::output::{Output, short};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Check these topics; all by default.
    #[arg(value_name = "TOPIC")]
    topics: Vec<String>,
    /// Report topics with a timer that has been overdue for longer than this.
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    max_overdue: Option<Duration>,
    /// Report topics with more undelivered timers, or with older ones.
    ///
    /// An age such as 5m counts from the first deadline of the oldest timer.
    #[arg(long, value_name = "COUNT|SPAN")]
    max_undelivered: Option<MaxUndelivered>,
    /// Report topics with more dead letters.
    #[arg(long, value_name = "COUNT")]
    max_dead: Option<u64>,
    /// Report topics with more timers in quarantine.
    #[arg(long, value_name = "COUNT")]
    max_quarantined: Option<u64>,
    /// Report topics with fewer listeners.
    #[arg(long, value_name = "COUNT")]
    min_listeners: Option<usize>,
    /// Tolerate these alarms, with commas between. All others are reported.
    ///
    /// The alarms are unreadable, closed, paused, unserved, held-back, failing, trimmed, handlers-differ, silent and
    /// stalled.
    #[arg(long, value_name = "ALARM", value_delimiter = ',')]
    allow: Vec<AlarmKind>,
}

#[derive(Serialize)]
struct Sum {
    topics: usize,
    alarms: usize,
    breaches: usize,
}

pub(crate) async fn run(console: &Console, args: &Args, out: &mut Output) -> Result<Exit, CliError> {
    let limits = limits(args);
    let status = console.status_named(&args.topics).await?;
    let CheckReport { alarms, breaches, .. } = limits.check(&status);
    list(out, "alarm", &alarms)?;
    list(out, "breach", &breaches)?;
    let topics = status.topics.len() + status.unreadable.len();
    let sum = Sum { topics, alarms: alarms.len(), breaches: breaches.len() };
    if out.is_json() {
        out.line("checked", &sum)?;
    } else {
        out.print_line(format!("topics={topics} alarms={} breaches={}", alarms.len(), breaches.len()))?;
    }
    match (topics == 0, breaches.is_empty() && alarms.is_empty()) {
        (true, _) => Err(CliError::no_topics(console.namespace())),
        (false, true) => Ok(Exit::Success),
        (false, false) => Ok(Exit::ProblemsFound),
    }
}

/// Prints a line for each alarm or breach.
fn list(out: &mut Output, kind: &str, all: &[impl Serialize + ToString]) -> Result<(), CliError> {
    all.iter()
        .try_for_each(|one| if out.is_json() { out.line(kind, one) } else { out.print_line(one.to_string()) })
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
    /// Check these topics; all by default.
    #[arg(value_name = "TOPIC")]
    topics: Vec<String>,
}

#[derive(Serialize)]
struct VerifiedTopic<'a> {
    topic: &'a str,
    #[serde(flatten)]
    verified: &'a VerifyReport,
}

pub(crate) async fn verify(console: &Console, args: &VerifyArgs, out: &mut Output) -> Result<Exit, CliError> {
    let Registry { topics, unreadable, .. } = console.registered(&args.topics).await?;
    let (mut looked_at, mut faults) = (0, 0);
    for topic in &topics {
        let verified = topic.verify(|_| ()).await?;
        looked_at += verified.checked;
        faults += verified.faults.values().sum::<u64>();
        say(&VerifiedTopic { topic: topic.name(), verified: &verified }, out)?;
    }
    out.unreadable(&unreadable)?;
    if !out.is_json() {
        out.print_line(format!("topics={} looked_at={looked_at} faults={faults}", topics.len()))?;
    }
    match (topics.is_empty() && unreadable.is_empty(), faults + unreadable.len() as u64) {
        (true, _) => Err(CliError::no_topics(console.namespace())),
        (false, 0) => Ok(Exit::Success),
        (false, _) => Ok(Exit::ProblemsFound),
    }
}

fn say(of: &VerifiedTopic<'_>, out: &mut Output) -> Result<(), CliError> {
    if out.is_json() {
        return out.line("verified", of);
    }
    for (what, faults) in &of.verified.faults {
        out.print_line(format!("{}: {what}: {faults}", of.topic))?;
    }
    for fault in &of.verified.first_faults {
        out.print_line(format!("  {} {}", fault.kind, short(&text::escape(&fault.key), 200)))?;
    }
    Ok(())
}
