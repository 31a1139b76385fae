//! `keylapse check`: for cron, probes and alarms.

use std::time::Duration;

use keylapse::console::{Alarm, AlarmKind, Breach, Console, Limits, TopicStatus, parse_span};
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
    #[arg(long, value_name = "COUNT|SPAN", value_parser = parse_undelivered)]
    max_undelivered: Option<Undelivered>,
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
    #[arg(long, value_name = "ALARM", value_delimiter = ',', value_parser = parse_alarm)]
    allow: Vec<AlarmKind>,
}

/// How many, or for how long.
#[derive(Clone, Copy, Debug)]
enum Undelivered {
    Count(u64),
    For(Duration),
}

fn parse_undelivered(text: &str) -> Result<Undelivered, String> {
    if let Ok(count) = text.parse() {
        return Ok(Undelivered::Count(count));
    }
    parse_span(text).map(Undelivered::For).map_err(|error| format!("{error}, or a number of timers"))
}

fn parse_alarm(text: &str) -> Result<AlarmKind, String> {
    let found = AlarmKind::ALL.into_iter().find(|kind| kind.as_str() == text);
    found.ok_or_else(|| {
        let all: Vec<_> = AlarmKind::ALL.iter().map(|kind| kind.as_str()).collect();
        format!("the alarms are {}", all.join(", "))
    })
}

#[derive(Serialize)]
struct Checked {
    topics: usize,
    alarms: usize,
    breaches: usize,
}

pub(crate) async fn run(console: &Console, args: &Args, out: &mut Output) -> Result<Exit, Failed> {
    let limits = limits(args);
    let status = console.status_named(&args.topics).await?;
    let mut alarms = status.alarms();
    // A topic that cannot be read has one alarm, and no figures to compare.
    let is_readable = |topic: &&TopicStatus| topic.problem.is_none();
    let breaches = status.topics.iter().filter(is_readable).flat_map(|topic| limits.breaches(topic));
    let breaches: Vec<Breach> = breaches.collect();
    // Where topics are named, alarms of listeners are left out: they may serve others.
    let is_asked = |alarm: &Alarm| args.topics.is_empty() || alarm.topic.is_some();
    alarms.retain(|alarm| is_asked(alarm) && !args.allow.contains(&alarm.kind));
    for alarm in &alarms {
        if out.is_json() {
            out.line("alarm", alarm)?;
        } else {
            out.say(alarm.to_string())?;
        }
    }
    for breach in &breaches {
        if out.is_json() {
            out.line("breach", breach)?;
        } else {
            out.say(breach.to_string())?;
        }
    }
    let topics = status.topics.len() + status.unreadable.len();
    let checked = Checked { topics, alarms: alarms.len(), breaches: breaches.len() };
    if out.is_json() {
        out.line("checked", &checked)?;
    } else {
        out.say(format!("topics={topics} alarms={} breaches={}", alarms.len(), breaches.len()))?;
    }
    match (topics == 0, breaches.is_empty() && alarms.is_empty()) {
        (true, _) => Err(Failed::no_topics(console.namespace())),
        (false, true) => Ok(Exit::Fine),
        (false, false) => Ok(Exit::Findings),
    }
}

fn limits(args: &Args) -> Limits {
    let (most, longest) = match args.max_undelivered {
        Some(Undelivered::Count(most)) => (Some(most), None),
        Some(Undelivered::For(longest)) => (None, Some(longest)),
        None => (None, None),
    };
    Limits::default()
        .undelivered(most)
        .undelivered_for(longest)
        .overdue(args.max_overdue)
        .dead(args.max_dead)
        .quarantined(args.max_quarantined)
        .listeners(args.min_listeners)
}
