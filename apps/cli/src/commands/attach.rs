//! `keylapse attach --dry-run`: what attaching to others' keys would mean.

use std::time::Duration;

use keylapse_console::{Console, Survey, Watched, parse_span};

use crate::exit::{Exit, Failed};
use crate::output::{Output, count, counted, short, size, span};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The pattern of the keys, such as order:unpaid:{id}.
    pattern: String,
    /// Only look, which is all that this command does: topics are attached by the programs that handle them.
    #[arg(long, required = true)]
    dry_run: bool,
    /// How many keys of the database to go through in a second.
    #[arg(long, value_name = "KEYS", default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1..))]
    scan_rate: u32,
    /// How many keys the topic would have room for.
    #[arg(long, value_name = "KEYS", default_value_t = 1_000_000)]
    cap: usize,
    /// After how long keys are looked at a second time, to tell how they are used; 0 for not at all.
    #[arg(long, value_name = "SPAN", default_value = "10s", value_parser = parse_span)]
    watch: Duration,
}

pub(crate) async fn run(console: &Console, args: &Args, out: &mut Output) -> Result<Exit, Failed> {
    let request = console.survey(&args.pattern)?.scan_rate(args.scan_rate).cap(args.cap).watch(args.watch);
    let survey = request.run().await?;
    if out.is_json() {
        out.line("survey", &survey)?;
    } else {
        show(&survey, out)?;
    }
    Ok(if survey.with_deadline == 0 { Exit::Findings } else { Exit::Fine })
}

fn show(survey: &Survey, out: &mut Output) -> Result<(), Failed> {
    let mut field = |name: &str, value: String| out.say(format!("{name:<16}{value}"));
    let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "unknown".to_owned());
    let keys = or_unknown(survey.keys.map(count));
    field("keys", format!("{keys} in the database, {} matching", count(survey.matching)))?;
    field("with deadline", count(survey.with_deadline))?;
    let types = survey.types.iter().map(|(kind, keys)| format!("{} {}", count(*keys), short(kind, 40)));
    field("types", types.collect::<Vec<_>>().join(", "))?;
    let reckoned = survey.value_bytes.map(|bytes| format!("{}, as the server reckons", size(bytes)));
    field("values", or_unknown(reckoned))?;
    field(
        "enrolled",
        format!("{}, about {} without values", count(survey.enrolled), size(survey.memory_bytes)),
    )?;
    if survey.too_long > 0 {
        field("too long", format!("{} of more than 4 KiB, left alone", counted(survey.too_long, "key")))?;
    }
    field("a scan takes", or_unknown(survey.scan_ms.map(span)))?;
    let hours = survey.due_by_hour.iter().enumerate().filter(|(_, keys)| **keys > 0);
    let hours: Vec<_> = hours.map(|(hour, keys)| due(hour, *keys)).collect();
    field("due", hours.join(", "))?;
    let Watched { after_ms, keys, refreshed, expired, deleted, persisted, .. } = survey.watched;
    if keys > 0 {
        let seen =
            format!("{refreshed} refreshed, {expired} expired, {deleted} deleted, {persisted} persisted");
        field("within", format!("{}, of {}: {seen}", span(after_ms), count(keys)))?;
    }
    for missing in &survey.missing {
        let (figure, right) = (missing.figure, missing.right);
        out.say(format!("- {figure} is unknown: the user lacks the right {right}"))?;
    }
    for advice in &survey.advice {
        out.say(format!("- {advice}"))?;
    }
    out.say(survey.to_string())
}

fn due(hour: usize, keys: u64) -> String {
    match hour {
        24 => format!("{} later", count(keys)),
        _ => format!("{} in hour {}", count(keys), hour + 1),
    }
}
