//! `keylapse attach --dry-run`: estimates the cost of attaching to keys that other programs write.

use std::time::Duration;

use keylapse_console::{Console, Survey, WatchedKeys, parse_span};

use crate::exit::{CliError, Exit};
use crate::output::{Output, count, counted, short, size, span};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The pattern of the keys, such as order:unpaid:{id}.
    pattern: String,
    /// Only estimate. It is required, as programs attach topics themselves.
    #[arg(long, required = true)]
    dry_run: bool,
    /// Scan this many keys of the database a second.
    #[arg(long, value_name = "KEYS", default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1..))]
    scan_rate: u32,
    /// Assume that the topic can track this many keys.
    #[arg(long, value_name = "KEYS", default_value_t = 1_000_000)]
    cap: usize,
    /// Read the keys again after this span to see their use; 0: do not.
    #[arg(long, value_name = "SPAN", default_value = "10s", value_parser = parse_span)]
    watch: Duration,
}

pub(crate) async fn run(console: &Console, args: &Args, out: &mut Output) -> Result<Exit, CliError> {
    let request = console.survey(&args.pattern)?.scan_rate(args.scan_rate).cap(args.cap).watch(args.watch);
    let survey = request.run().await?;
    if out.is_json() {
        out.line("survey", &survey)?;
    } else {
        show(&survey, out)?;
    }
    Ok(if survey.with_deadline == 0 { Exit::ProblemsFound } else { Exit::Success })
}

fn show(survey: &Survey, out: &mut Output) -> Result<(), CliError> {
    let mut field = |name: &str, value: String| out.print_line(format!("{name:<16}{value}"));
    let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "unknown".to_owned());
    let keys = or_unknown(survey.keys.map(count));
    field("keys", format!("{keys} in the database, {} matching", count(survey.matching)))?;
    field("with deadline", count(survey.with_deadline))?;
    let types = survey.types.iter().map(|(kind, keys)| format!("{} {}", count(*keys), short(kind, 40)));
    field("types", types.collect::<Vec<_>>().join(", "))?;
    let reckoned = survey.value_bytes.map(|bytes| format!("{}, as the server estimates", size(bytes)));
    field("values", or_unknown(reckoned))?;
    field(
        "tracked",
        format!("{}, about {} without values", count(survey.tracked), size(survey.memory_bytes)),
    )?;
    if survey.too_long > 0 {
        field("too long", format!("{} of more than 4 KiB, not tracked", counted(survey.too_long, "key")))?;
    }
    field("a scan takes", or_unknown(survey.scan_ms.map(span)))?;
    let hours = survey.due_by_hour.iter().enumerate().filter(|(_, keys)| **keys > 0);
    let hours: Vec<_> = hours.map(|(hour, keys)| due(hour, *keys)).collect();
    field("due", hours.join(", "))?;
    let WatchedKeys { after_ms, keys, refreshed, expired, deleted, persisted, .. } = survey.watched;
    if keys > 0 {
        let seen =
            format!("{refreshed} refreshed, {expired} expired, {deleted} deleted, {persisted} persisted");
        field("within", format!("{}, of {}: {seen}", span(after_ms), count(keys)))?;
    }
    for missing in &survey.missing {
        let (figure, right) = (missing.figure, missing.right);
        out.print_line(format!("- {figure} is unknown: the user lacks the right {right}"))?;
    }
    for advice in &survey.advice {
        out.print_line(format!("- {advice}"))?;
    }
    out.print_line(survey.to_string())
}

fn due(hour: usize, keys: u64) -> String {
    match hour {
        24 => format!("{} later", count(keys)),
        _ => format!("{} in hour {}", count(keys), hour + 1),
    }
}
