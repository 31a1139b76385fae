//! An action on many entries, which are counted and confirmed first. `keylapse dead` is one of these.

use keylapse_console::{Action, BulkEnd, BulkReport, Console, Cursor, EntryState, Filter, TopicHandle};
use serde::Serialize;

use crate::args::{BulkArgs, ListingArgs};
use crate::exit::{CliError, Exit};
use crate::output::{Output, ProgressLine, count, counted};
use crate::signals;

#[derive(clap::Args, Debug)]
pub(crate) struct DeadArgs {
    #[command(subcommand)]
    what: DeadCommand,
}

#[derive(clap::Subcommand, Debug)]
enum DeadCommand {
    /// Arm dead letters again, due now. Their attempts start over.
    ///
    /// A dead letter whose key has a timer is left as it is.
    Replay(ReplayArgs),
    /// Delete dead letters. They cannot be restored.
    Drop(DropArgs),
}

#[derive(clap::Args, Debug)]
struct ReplayArgs {
    #[command(flatten)]
    letters: ListingArgs,
    /// Arm them with new IDs, so that receivers do not drop them as duplicates.
    #[arg(long)]
    as_new: bool,
    #[command(flatten)]
    bulk: BulkArgs,
}

#[derive(clap::Args, Debug)]
struct DropArgs {
    #[command(flatten)]
    letters: ListingArgs,
    #[command(flatten)]
    bulk: BulkArgs,
}

pub(crate) async fn dead(console: &Console, args: &DeadArgs, out: &mut Output) -> Result<Exit, CliError> {
    let (letters, args, action) = match &args.what {
        DeadCommand::Replay(ReplayArgs { letters, bulk, as_new: false }) => (letters, bulk, Action::Replay),
        DeadCommand::Replay(ReplayArgs { letters, bulk, as_new: true }) => {
            (letters, bulk, Action::ReplayAsNew)
        }
        DeadCommand::Drop(DropArgs { letters, bulk }) => (letters, bulk, Action::Drop),
    };
    let filter = Filter::parse(&letters.filters)?;
    let topic = console.topic(&letters.topic).await?;
    let (state, after) = (EntryState::Dead, letters.after.clone());
    run(&BulkTask { topic: &topic, action, state, filter, after }, args, out).await
}

/// An action and the entries that it is for.
pub(super) struct BulkTask<'a> {
    pub(super) topic: &'a TopicHandle,
    pub(super) action: Action,
    pub(super) state: EntryState,
    pub(super) filter: Filter,
    pub(super) after: Option<Cursor>,
}

/// The summary, which is the last line of JSON.
#[derive(Serialize)]
struct BulkSummary<'a> {
    topic: &'a str,
    dry_run: bool,
    #[serde(flatten)]
    report: &'a BulkReport,
}

pub(super) async fn run(work: &BulkTask<'_>, args: &BulkArgs, out: &mut Output) -> Result<Exit, CliError> {
    let found = work.look(args).await?;
    if args.dry_run {
        return end(work, args, &found, out);
    }
    let matched = found.matched;
    if matched == 0 {
        return end(work, args, &BulkReport::default(), out);
    }
    agree(work, args, matched, out)?;
    let mut progress = ProgressLine::new(work.action.will_be(), Some(matched));
    let bulk = work.bulk(args).limit(matched).progress(|report| progress.at(report.matched));
    let report = tokio::select! {
        report = bulk.until(signals::to_end()).run() => report,
        () = signals::second_shutdown_signal_received() => {
            return Err(CliError::Findings("stopped immediately: completed actions are kept, and not counted".to_owned()));
        }
    };
    progress.end();
    end(work, args, &report?, out)
}

impl BulkTask<'_> {
    fn bulk(&self, args: &BulkArgs) -> keylapse_console::Bulk<'_> {
        let bulk = self.topic.bulk(self.action, self.state, self.filter.clone()).after(self.after.clone());
        let bulk = bulk.limit(args.limit.unwrap_or(u64::MAX));
        match args.rate {
            Some(rate) => bulk.rate(rate),
            None => bulk,
        }
    }

    /// Counts the entries that match, and changes nothing.
    async fn look(&self, args: &BulkArgs) -> Result<BulkReport, CliError> {
        let mut progress = ProgressLine::new("counted", None);
        let report = self.bulk(args).dry_run(true).progress(|report| progress.at(report.matched)).run().await;
        progress.end();
        Ok(report?)
    }

    /// Describes the entries: `12 dead letters of order.unpaid matching error:~timeout`.
    fn words(&self, matched: u64) -> String {
        let all = format!("{} of {}", counted(matched, self.state.label()), self.topic.name());
        if self.filter.is_empty() { all } else { format!("{all} matching {}", self.filter) }
    }
}

/// Requires a confirmation: the number of entries, typed or by `--expect`.
fn agree(work: &BulkTask<'_>, args: &BulkArgs, matched: u64, out: &mut Output) -> Result<(), CliError> {
    if let Some(expected) = args.expect.filter(|expected| *expected != matched) {
        return Err(CliError::Findings(format!(
            "{matched} found, {expected} expected: nothing was done; look at them with --dry-run"
        )));
    }
    if args.yes {
        return Ok(());
    }
    if !Output::can_ask() {
        return Err(CliError::Usage(format!(
            "{} would be {}: confirm with --yes --expect {matched}, as standard input is no terminal",
            work.words(matched),
            work.action.will_be()
        )));
    }
    out.note(format!("{} will be {}.", work.words(matched), work.action.will_be()));
    let answer = out.ask("Type their number to continue:")?;
    match answer.replace(',', "").parse::<u64>() {
        Ok(typed) if matched == typed => Ok(()),
        _ => Err(CliError::Findings("the number is not theirs: nothing was done".to_owned())),
    }
}

fn end(
    work: &BulkTask<'_>,
    args: &BulkArgs,
    report: &BulkReport,
    out: &mut Output,
) -> Result<Exit, CliError> {
    if out.is_json() {
        out.line("bulk", &BulkSummary { topic: work.topic.name(), dry_run: args.dry_run, report })?;
    } else {
        for error in &report.errors {
            out.print_line(format!("failed: {error}"))?;
        }
        for (outcome, entries) in &report.outcomes {
            out.print_line(format!("{}: {}", outcome.replace('_', " "), count(*entries)))?;
        }
        if args.dry_run {
            out.print_line(format!("{} would be {}", work.words(report.matched), work.action.will_be()))?;
        }
        out.print_line(report.to_string())?;
    }
    match report.end {
        BulkEnd::Stopped => out.note("stopped: completed actions are kept"),
        BulkEnd::ServerLost => {
            out.note("the server was lost: completed actions are kept, and failed ones may be completed");
        }
        _ => {}
    }
    if let Some(cursor) = report.cursor.as_ref().filter(|_| !args.dry_run) {
        out.note_rest(cursor);
    }
    Ok(match report.end {
        BulkEnd::ServerLost => Exit::Unreachable,
        _ if report.failed > 0 => Exit::Unreachable,
        BulkEnd::Completed if report.matched > 0 => Exit::Success,
        _ => Exit::ProblemsFound,
    })
}
