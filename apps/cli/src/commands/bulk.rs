//! One action on many entries: counted first, then asked for, then done. `keylapse dead` does nothing else.

use keylapse_console::{Action, BulkEnd, BulkReport, Console, Cursor, EntryState, Filter, KnownTopic};
use serde::Serialize;

use crate::args::{Bulk, Listing};
use crate::exit::{Exit, Failed};
use crate::output::{Output, Progress, count, counted};
use crate::signals;

#[derive(clap::Args, Debug)]
pub(crate) struct DeadArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// Arm their timers again, for now. Their attempts start over; a key that has a timer is left alone.
    Replay(Replay),
    /// Forget them.
    Drop(Drop),
}

#[derive(clap::Args, Debug)]
struct Replay {
    #[command(flatten)]
    letters: Listing,
    /// As new armings with ids of their own: for what is to be done once more although it may have been done.
    #[arg(long)]
    as_new: bool,
    #[command(flatten)]
    bulk: Bulk,
}

#[derive(clap::Args, Debug)]
struct Drop {
    #[command(flatten)]
    letters: Listing,
    #[command(flatten)]
    bulk: Bulk,
}

pub(crate) async fn dead(console: &Console, args: &DeadArgs, out: &mut Output) -> Result<Exit, Failed> {
    let (letters, args, action) = match &args.what {
        What::Replay(Replay { letters, bulk, as_new: false }) => (letters, bulk, Action::Replay),
        What::Replay(Replay { letters, bulk, as_new: true }) => (letters, bulk, Action::ReplayAsNew),
        What::Drop(Drop { letters, bulk }) => (letters, bulk, Action::Drop),
    };
    let filter = Filter::parse(&letters.filters)?;
    let topic = console.topic(&letters.topic).await?;
    let (state, after) = (EntryState::Dead, letters.after.clone());
    run(&Work { topic: &topic, action, state, filter, after }, args, out).await
}

/// What is to be done, to which entries.
pub(super) struct Work<'a> {
    pub(super) topic: &'a KnownTopic,
    pub(super) action: Action,
    pub(super) state: EntryState,
    pub(super) filter: Filter,
    pub(super) after: Option<Cursor>,
}

/// The last line, as JSON.
#[derive(Serialize)]
struct Done<'a> {
    topic: &'a str,
    dry_run: bool,
    #[serde(flatten)]
    report: &'a BulkReport,
}

pub(super) async fn run(work: &Work<'_>, args: &Bulk, out: &mut Output) -> Result<Exit, Failed> {
    let found = work.look(args).await?;
    if args.dry_run {
        return end(work, args, &found, out);
    }
    let matched = found.matched;
    if matched == 0 {
        return end(work, args, &BulkReport::default(), out);
    }
    agree(work, args, matched, out)?;
    let mut progress = Progress::new(work.action.will_be(), Some(matched));
    let bulk = work.bulk(args).limit(matched).progress(|report| progress.at(report.matched));
    let report = tokio::select! {
        report = bulk.until(signals::to_end()).run() => report,
        () = signals::to_end_at_once() => {
            return Err(Failed::Findings("ended at once: what was done stays done, and is not counted".to_owned()));
        }
    };
    progress.end();
    end(work, args, &report?, out)
}

impl Work<'_> {
    fn bulk(&self, args: &Bulk) -> keylapse_console::Bulk<'_> {
        let bulk = self.topic.bulk(self.action, self.state, self.filter.clone()).after(self.after.clone());
        let bulk = bulk.limit(args.limit.unwrap_or(u64::MAX));
        match args.rate {
            Some(rate) => bulk.rate(rate),
            None => bulk,
        }
    }

    /// All but the last step.
    async fn look(&self, args: &Bulk) -> Result<BulkReport, Failed> {
        let mut progress = Progress::new("counted", None);
        let report = self.bulk(args).dry_run(true).progress(|report| progress.at(report.matched)).run().await;
        progress.end();
        Ok(report?)
    }

    /// `12 dead letters of order.unpaid matching error:~timeout`.
    fn words(&self, matched: u64) -> String {
        let all = format!("{} of {}", counted(matched, self.state.called()), self.topic.name());
        if self.filter.is_empty() { all } else { format!("{all} matching {}", self.filter) }
    }
}

/// Has somebody say how many there are, or refuses.
fn agree(work: &Work<'_>, args: &Bulk, matched: u64, out: &mut Output) -> Result<(), Failed> {
    if let Some(expected) = args.expect.filter(|expected| *expected != matched) {
        return Err(Failed::Findings(format!(
            "{matched} found, {expected} expected: nothing was done; look at them with --dry-run"
        )));
    }
    if args.yes {
        return Ok(());
    }
    if !Output::can_ask() {
        return Err(Failed::Usage(format!(
            "{} would be {}, and nobody can be asked: say --yes --expect {matched}",
            work.words(matched),
            work.action.will_be()
        )));
    }
    out.note(format!("{} will be {}.", work.words(matched), work.action.will_be()));
    let answer = out.ask("Type their number to go on:")?;
    match answer.replace(',', "").parse::<u64>() {
        Ok(typed) if matched == typed => Ok(()),
        _ => Err(Failed::Findings("that is not their number: nothing was done".to_owned())),
    }
}

fn end(work: &Work<'_>, args: &Bulk, report: &BulkReport, out: &mut Output) -> Result<Exit, Failed> {
    if out.is_json() {
        out.line("bulk", &Done { topic: work.topic.name(), dry_run: args.dry_run, report })?;
    } else {
        for error in &report.errors {
            out.say(format!("failed: {error}"))?;
        }
        for (outcome, entries) in &report.outcomes {
            out.say(format!("{}: {}", outcome.replace('_', " "), count(*entries)))?;
        }
        if args.dry_run {
            out.say(format!("{} would be {}", work.words(report.matched), work.action.will_be()))?;
        }
        out.say(report.to_string())?;
    }
    match report.end {
        BulkEnd::Stopped => out.note("stopped: what was done stays done"),
        BulkEnd::Lost => {
            out.note("the server was lost: what was done stays done, and what failed may have been done");
        }
        _ => {}
    }
    if let Some(cursor) = report.cursor.as_ref().filter(|_| !args.dry_run) {
        out.note_rest(cursor);
    }
    Ok(match report.end {
        BulkEnd::Lost => Exit::Unreachable,
        _ if report.failed > 0 => Exit::Unreachable,
        BulkEnd::Whole if report.matched > 0 => Exit::Fine,
        _ => Exit::Findings,
    })
}
