//! `keylapse check`: for cron, probes and alarms.

use std::time::Duration;

use keylapse_console::{AlarmKind, Checked, Console, Limits, MaxUndelivered, parse_span};
use serde::Serialize;

use crate::exit::{Exit, Failed};
use crate::output::Output;

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
