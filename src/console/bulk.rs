//! One action on all entries that a filter lets pass.
//!
//! Counting and acting go through the same pages with the same filter, and a dry run differs from a real one only in
//! the last step, so that what was counted is what is acted upon.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::iter;
use futures::{FutureExt, StreamExt};
use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use crate::console::{Cursor, Entry, EntryState, Filter, KnownTopic};
use crate::error::{Error, Result};
use crate::time::When;
use crate::wire::names::fnv1a;
use crate::wire::{Cancelled, Replayed, Rescheduled};

/// Entries that are acted upon at a time.
const AT_A_TIME: usize = 32;
/// Entries of one page.
const PAGE: usize = 500;
/// Failures that a report names.
const NAMED: usize = 10;

/// What is done to each entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Withdraw timers.
    Cancel,
    /// Make waiting timers due now.
    RunNow,
    /// Move waiting timers.
    Reschedule(When),
    /// Arm dead letters again, as the armings that they were.
    Replay,
    /// Arm dead letters again, as new armings.
    ReplayAsNew,
    /// Forget dead letters.
    Drop,
}

/// An action on many entries, about to be taken: set options, then [`count`](Self::count) or [`run`](Self::run) it.
#[must_use = "nothing is done until it is run"]
pub struct Bulk<'a> {
    topic: &'a KnownTopic,
    action: Action,
    state: EntryState,
    filter: Filter,
    after: Option<Cursor>,
    limit: u64,
    rate: Option<u32>,
    dry: bool,
    progress: Option<Progress<'a>>,
    stop: BoxFuture<'a, ()>,
}

/// Is told how far it is.
type Progress<'a> = Box<dyn FnMut(&BulkReport) + Send + 'a>;

/// What became of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct BulkReport {
    /// Entries that the filter let pass, up to the limit.
    pub matched: u64,
    /// Entries that the action was done to; in a dry run none.
    pub done: u64,
    /// Entries that were left alone: gone or changed meanwhile, or of no use for the action.
    pub skipped: u64,
    /// Entries of which the server refused it.
    pub failed: u64,
    /// How many there were of each outcome.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// The first ten failures.
    pub errors: Vec<String>,
    /// Whether it was told to stop before its end.
    pub stopped: bool,
    /// Where it has ended: to go on from there, if it was cut short.
    #[serde(serialize_with = "cursor_as_text")]
    pub cursor: Option<Cursor>,
}

#[allow(clippy::ref_option)] // as serde asks
fn cursor_as_text<S: serde::Serializer>(cursor: &Option<Cursor>, out: S) -> Result<S::Ok, S::Error> {
    cursor.as_ref().map(ToString::to_string).serialize(out)
}

/// What became of one.
enum Outcome {
    Done(&'static str),
    Skipped(&'static str),
    Failed(Error),
}

impl KnownTopic {
    /// An action on all of the topic's entries in a state that a filter lets pass.
    ///
    /// Each entry is acted upon once, also where it comes to stand behind others by that. Between counting and acting
    /// others may come or go: what is acted upon matches then.
    ///
    /// ```no_run
    /// use keylapse::console::{Action, Console, EntryState, Filter};
    ///
    /// # async fn replay(console: Console) -> keylapse::Result<()> {
    /// let orders = console.topic("order.unpaid").await?;
    /// let timed_out = Filter::parse(["error:~timeout"])?;
    /// let bulk = || orders.bulk(Action::Replay, EntryState::Dead, timed_out.clone());
    /// let matched = bulk().count().await?;
    /// let report = bulk().limit(matched).run().await?;
    /// println!("{report}");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Of kind [`Invalid`](crate::ErrorKind::Invalid) where the action is not for entries in that state.
    pub fn bulk(&self, action: Action, state: EntryState, filter: Filter) -> Bulk<'_> {
        let (after, limit, rate, dry, progress) = (None, u64::MAX, None, false, None);
        let stop = std::future::pending().boxed();
        Bulk { topic: self, action, state, filter, after, limit, rate, dry, progress, stop }
    }
}

impl<'a> Bulk<'a> {
    /// Acts upon no more than so many.
    pub fn limit(mut self, limit: u64) -> Self {
        self.limit = limit;
        self
    }

    /// Acts upon no more than so many a second.
    pub fn rate(mut self, per_second: u32) -> Self {
        self.rate = (per_second > 0).then_some(per_second);
        self
    }

    /// Begins behind where another has ended.
    pub fn after(mut self, cursor: Option<Cursor>) -> Self {
        self.after = cursor;
        self
    }

    /// Does all but the last step.
    pub fn dry_run(mut self, dry: bool) -> Self {
        self.dry = dry;
        self
    }

    /// Is told after each page how far it is.
    pub fn progress(mut self, tell: impl FnMut(&BulkReport) + Send + 'a) -> Self {
        self.progress = Some(Box::new(tell));
        self
    }

    /// Ends early once this completes: behind the step that is under way, which is a tenth of a second's share of a
    /// [`rate`](Self::rate), or up to 500 entries. The report says what was done, and where to go on.
    pub fn until(mut self, stop: impl Future<Output = ()> + Send + 'a) -> Self {
        self.stop = stop.boxed();
        self
    }

    /// How many entries match, up to the limit.
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    pub async fn count(self) -> Result<u64> {
        Ok(self.dry_run(true).run().await?.matched)
    }

    /// Goes through all that match.
    ///
    /// # Errors
    /// When the action is not for entries in that state, or entries cannot be read. What was done until then stays done;
    /// run it again for the rest. An entry of which the server refuses the action is counted and no error.
    pub async fn run(mut self) -> Result<BulkReport> {
        self.check()?;
        let (mut report, mut met) =
            (BulkReport { cursor: self.after.clone(), ..BulkReport::default() }, HashSet::new());
        let stop = std::mem::replace(&mut self.stop, std::future::pending().boxed());
        let mut pace = Pace::new(self.rate, stop);
        loop {
            if !pace.goes_on(0).await {
                report.stopped = true;
                return Ok(report);
            }
            let room = usize::try_from(self.limit - report.matched).unwrap_or(usize::MAX);
            let from = report.cursor.as_ref();
            let read = |count| self.topic.filtered(self.state, &self.filter, from, count, None);
            let mut page = read(PAGE).await?;
            // Where it ends is to have nothing before it that the limit has left out.
            if page.entries.len() > room {
                page = read(room).await?;
            }
            // What was moved may be met with once more.
            let fresh =
                page.entries.into_iter().filter(|entry| met.insert(fnv1a(entry.name.iter().copied())));
            let fresh: Vec<_> = fresh.take(room).collect();
            self.act(&fresh, &mut pace, &mut report).await;
            if !report.stopped {
                report.cursor = page.next;
            }
            self.progress.iter_mut().for_each(|tell| tell(&report));
            if report.stopped || report.cursor.is_none() || report.matched >= self.limit {
                return Ok(report);
            }
        }
    }

    async fn act(&self, entries: &[Entry], pace: &mut Pace<'_>, report: &mut BulkReport) {
        if self.dry {
            report.matched += entries.len() as u64;
            return;
        }
        for some in entries.chunks(pace.chunk) {
            if !pace.goes_on(some.len()).await {
                report.stopped = true;
                return;
            }
            report.matched += some.len() as u64;
            let outcomes = iter(some.iter().map(|entry| self.act_on(entry))).buffer_unordered(AT_A_TIME);
            outcomes.for_each(|outcome| (report.add(outcome), std::future::ready(())).1).await;
            report.cursor = some.last().and_then(Cursor::behind).or(report.cursor.take());
        }
    }

    async fn act_on(&self, entry: &Entry) -> Outcome {
        let topic = self.topic;
        match self.action {
            Action::Cancel => topic.cancel(&entry.key).await.map_or_else(Outcome::Failed, Outcome::of_cancel),
            Action::RunNow => topic.run_now(&entry.key).await.map_or_else(Outcome::Failed, Outcome::of_move),
            Action::Reschedule(when) => {
                topic.reschedule(&entry.key, when).await.map_or_else(Outcome::Failed, Outcome::of_move)
            }
            Action::Replay => {
                topic.replay(entry, false).await.map_or_else(Outcome::Failed, Outcome::of_replay)
            }
            Action::ReplayAsNew => {
                topic.replay(entry, true).await.map_or_else(Outcome::Failed, Outcome::of_replay)
            }
            Action::Drop => match topic.drop_letter(entry).await {
                Ok(true) => Outcome::Done("dropped"),
                Ok(false) => Outcome::Skipped("gone"),
                Err(error) => Outcome::Failed(error),
            },
        }
    }

    fn check(&self) -> Result<()> {
        use EntryState::{Dead, Enrolled, Quarantined, Running, Waiting};
        let fits = match self.action {
            Action::Cancel => matches!(self.state, Waiting | Running | Quarantined),
            Action::RunNow | Action::Reschedule(_) => matches!(self.state, Waiting | Quarantined),
            Action::Replay | Action::ReplayAsNew | Action::Drop => self.state == Dead,
        };
        match fits && self.state != Enrolled {
            true => Ok(()),
            false => {
                let state = self.state.as_str();
                Err(Error::invalid(format!("{:?} is not for entries that are {state}", self.action)))
            }
        }
    }
}

impl std::fmt::Debug for Bulk<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bulk({}, {:?}, {})", self.topic.name(), self.action, self.filter)
    }
}

impl Outcome {
    fn of_cancel(cancelled: Cancelled) -> Self {
        match cancelled {
            Cancelled::Cancelled | Cancelled::Claimed => Self::Done("cancelled"),
            Cancelled::InFlight => Self::Done("cancelled, was running"),
            Cancelled::NotArmed => Self::Skipped("gone"),
        }
    }

    fn of_move(moved: Rescheduled) -> Self {
        match moved {
            Rescheduled::Rescheduled(_) => Self::Done("rescheduled"),
            Rescheduled::InFlight => Self::Skipped("running"),
            Rescheduled::NotArmed => Self::Skipped("gone"),
        }
    }

    fn of_replay(replayed: Replayed) -> Self {
        match replayed {
            Replayed::Replayed => Self::Done("replayed"),
            Replayed::Exists => Self::Skipped("has a timer"),
            Replayed::Gone => Self::Skipped("gone"),
            Replayed::Unreadable => Self::Skipped("unreadable"),
        }
    }
}

impl BulkReport {
    fn add(&mut self, outcome: Outcome) {
        let word = match outcome {
            Outcome::Done(word) => (self.done += 1, word).1,
            Outcome::Skipped(word) => (self.skipped += 1, word).1,
            Outcome::Failed(error) => {
                self.failed += 1;
                if self.errors.len() < NAMED {
                    self.errors.push(error.to_string());
                }
                "failed"
            }
        };
        *self.outcomes.entry(word).or_default() += 1;
    }
}

impl std::fmt::Display for BulkReport {
    /// The last line of a command: `matched=3 done=2 skipped=1 failed=0`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { matched, done, skipped, failed, .. } = self;
        write!(f, "matched={matched} done={done} skipped={skipped} failed={failed}")
    }
}

/// No faster than was asked for, and no further once it is to stop.
struct Pace<'a> {
    each: Option<Duration>,
    next: Instant,
    /// Entries between two waits.
    chunk: usize,
    stop: BoxFuture<'a, ()>,
}

impl<'a> Pace<'a> {
    fn new(rate: Option<u32>, stop: BoxFuture<'a, ()>) -> Self {
        // Ten steps a second, where the rate is above that.
        let chunk = rate.map_or(PAGE, |rate| (rate as usize / 10).clamp(1, PAGE));
        let each = rate.map(|rate| Duration::from_secs(1) / rate);
        Self { each, next: Instant::now(), chunk, stop }
    }

    /// Waits until so many are in turn; false where it is to stop before.
    async fn goes_on(&mut self, entries: usize) -> bool {
        let turn = async {
            if self.each.is_some() {
                sleep_until(self.next).await;
            }
        };
        tokio::select! {
            biased;
            () = &mut self.stop => return false,
            () = turn => {}
        }
        let each = self.each.unwrap_or_default();
        self.next = self.next.max(Instant::now()) + each * u32::try_from(entries).unwrap_or(u32::MAX);
        true
    }
}
