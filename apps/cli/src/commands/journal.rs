//! `keylapse journal`: lists timers that have ended, for a topic that keeps a journal.

use keylapse_console::{Console, JournalEntry, text};

use crate::exit::{CliError, Exit};
use crate::output::{Column, Output, Table, moment, or_none, short};

/// Entries that are read in one call.
const JOURNAL_PAGE_ENTRIES: u64 = 500;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The name of the topic.
    topic: String,
    /// Print at most this many entries, the newest first.
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
}

pub(crate) async fn run(console: &Console, args: &Args, out: &mut Output) -> Result<Exit, CliError> {
    let topic = console.topic(&args.topic).await?;
    if topic.journal_bounds().await?.is_none() {
        let advice = "the topic keeps no journal: call Topic::journal(count, age) in its listeners";
        return Err(CliError::Findings(format!("{}: {advice}", topic.name())));
    }
    let (mut left, mut behind, mut found) = (args.limit, None, 0);
    while left > 0 {
        let page = topic
            .journal(behind.as_ref(), usize::try_from(left.min(JOURNAL_PAGE_ENTRIES)).unwrap_or(500))
            .await?;
        show(&page.entries, out)?;
        found += page.entries.len();
        left -= left.min(page.entries.len() as u64);
        behind = page.next;
        if behind.is_none() {
            break;
        }
    }
    Ok(if found == 0 { Exit::ProblemsFound } else { Exit::Success })
}

fn show(entries: &[JournalEntry], out: &mut Output) -> Result<(), CliError> {
    use Column::{Number, Text};
    if out.is_json() {
        return entries.iter().try_for_each(|entry| out.line("journal_entry", entry));
    }
    let mut table =
        Table::new(&[Text("KEY"), Text("ENDED"), Text("OUTCOME"), Number("ATTEMPT"), Text("DEADLINE")]);
    for entry in entries {
        let outcome = entry.outcome.as_str();
        let outcome = entry
            .reason
            .map_or_else(|| outcome.to_owned(), |reason| format!("{outcome}: {}", reason.as_str()));
        table.row([
            short(&text::escape(&entry.key), 100),
            moment(entry.ended_ms),
            outcome,
            entry.attempt.to_string(),
            or_none(entry.deadline_ms.map(moment)),
        ]);
    }
    out.table(&table)
}
