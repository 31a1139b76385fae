//! `keylapse check`: for cron, probes and alarms.

use std::time::Duration;

use keylapse::console::{Breach, Console, Limits, Status, parse_span};
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
    /// How many dead letters a topic may have.
    #[arg(long, value_name = "COUNT")]
    max_dead: Option<u64>,
    /// How many timers of a topic may be in quarantine.
    #[arg(long, value_name = "COUNT")]
    max_quarantined: Option<u64>,
    /// How many listeners a topic has to have.
    #[arg(long, value_name = "COUNT")]
    min_listeners: Option<usize>,
}

#[derive(Serialize)]
struct Checked {
    topics: usize,
    breaches: usize,
}

pub(crate) async fn run(console: &Console, args: &Args, out: &mut Output) -> Result<Exit, Failed> {
    let limits = limits(args)?;
    let Status { topics, unreadable, .. } = console.status_named(&args.topics).await?;
    let mut breaches: Vec<Breach> = topics.iter().flat_map(|topic| limits.breaches(topic)).collect();
    breaches.extend(unreadable.iter().map(Breach::from));
    for breach in &breaches {
        if out.is_json() {
            out.line("breach", breach)?;
        } else {
            out.say(breach.to_string())?;
        }
    }
    let checked = Checked { topics: topics.len() + unreadable.len(), breaches: breaches.len() };
    if out.is_json() {
        out.line("checked", &checked)?;
    } else {
        out.say(format!("topics={} breaches={}", checked.topics, checked.breaches))?;
    }
    match (checked.topics == 0, breaches.is_empty()) {
        (true, _) => Err(Failed::no_topics(console.namespace())),
        (false, true) => Ok(Exit::Fine),
        (false, false) => Ok(Exit::Findings),
    }
}

fn limits(args: &Args) -> Result<Limits, Failed> {
    let limits = Limits::default()
        .overdue(args.max_overdue)
        .dead(args.max_dead)
        .quarantined(args.max_quarantined)
        .listeners(args.min_listeners);
    match limits == Limits::default() {
        true => Err(Failed::Usage(
            "nothing is checked: say --max-overdue 5s, --max-dead 0 or --min-listeners 1".to_owned(),
        )),
        false => Ok(limits),
    }
}
