//! `keylapse verify`: whether index and records agree.

use keylapse_console::{Console, Registry, Verified, text};
use serde::Serialize;

use crate::exit::{Exit, Failed};
use crate::output::{Output, short};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
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

pub(crate) async fn run(console: &Console, args: &Args, out: &mut Output) -> Result<Exit, Failed> {
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
