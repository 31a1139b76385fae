//! `keylapse ls`: lists the entries of a topic, page by page.

use keylapse_console::{Console, Entry, EntryState, Filter, Page, text};

use crate::args::ListingArgs;
use crate::exit::{CliError, Exit};
use crate::output::{Column, Output, Table, ago, moment, ms_of, short, size};

/// Bytes of a payload that are shown.
const SHOWN: usize = 4096;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    listing: ListingArgs,
    /// List entries in a state: waiting, running, quarantined, dead, tracked.
    #[arg(long, default_value = "waiting", value_name = "STATE")]
    state: EntryState,
    /// Print at most this many entries.
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// Print payloads, up to 4 KiB of each. They may hold secrets.
    #[arg(long)]
    payloads: bool,
}

pub(crate) async fn run(console: &Console, args: &Args, out: &mut Output) -> Result<Exit, CliError> {
    let filter = Filter::parse(&args.listing.filters)?;
    let topic = console.topic(&args.listing.topic).await?;
    let payload = args.payloads.then_some(SHOWN);
    let (mut left, mut cursor, mut found) = (args.limit, args.listing.after.clone(), 0_u64);
    loop {
        let count = usize::try_from(left.min(1000)).unwrap_or(1000);
        let page = topic.filtered(args.state, &filter, cursor.as_ref(), count, payload).await?;
        found += page.entries.len() as u64;
        left = left.saturating_sub(page.entries.len() as u64);
        show(&page, args, out)?;
        cursor = page.next;
        if cursor.is_none() || left == 0 {
            break;
        }
    }
    if let Some(cursor) = cursor {
        out.note_rest(&cursor);
    }
    Ok(if found == 0 { Exit::ProblemsFound } else { Exit::Success })
}

fn show(page: &Page, args: &Args, out: &mut Output) -> Result<(), CliError> {
    if out.is_json() {
        return page.entries.iter().try_for_each(|entry| out.line("entry", entry));
    }
    match page.entries.is_empty() {
        true => Ok(()),
        false => out.table(&table(page, args)),
    }
}

fn table(page: &Page, args: &Args) -> Table {
    use Column::{Number, Text};
    let dead = args.state == EntryState::Dead;
    let when = if dead { "DIED" } else { "AT" };
    let mut columns = vec![Text("KEY"), Text(when), Text(""), Number("ATTEMPT"), Number("PAYLOAD")];
    columns.extend(dead.then_some(Text("REASON")));
    columns.push(Text("LAST ERROR"));
    columns.extend(args.payloads.then_some(Text("")));
    let mut table = Table::new(&columns);
    for entry in &page.entries {
        table.row(row(entry, args, ms_of(page.now)));
    }
    table
}

fn row(entry: &Entry, args: &Args, now_ms: u64) -> Vec<String> {
    let mut cells = vec![
        short(&text::escape(&entry.key), 100),
        moment(entry.at_ms),
        ago(entry.at_ms, now_ms),
        entry.attempt.to_string(),
        size(entry.payload_bytes),
    ];
    if args.state == EntryState::Dead {
        cells.push(entry.reason.map_or("", |reason| reason.as_str()).to_owned());
    }
    cells.push(short(entry.last_error().unwrap_or_default(), 80));
    if args.payloads {
        cells.push(entry.payload.as_ref().map_or_else(String::new, |payload| text::escape(payload)));
    }
    cells
}
