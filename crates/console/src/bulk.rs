//! One action on all entries that a filter lets pass.
//!
//! Counting and acting go through the same pages with the same filter, and a dry run differs from a real one only in
//! the last step, so that what was counted is what is acted upon.

use std::collections::{BTreeMap, HashSet};
use std::future::ready;
use std::sync::OnceLock;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::iter;
use futures::{FutureExt, StreamExt};
use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use crate::act::Became;
use crate::error::{Error, Result};
use crate::wire::names::fnv1a;
use crate::{Action, Cursor, Entry, EntryState, Filter, KnownTopic, Page};

/// Entries that are acted upon at a time.
const AT_A_TIME: usize = 32;
/// Entries of one page.
const PAGE: usize = 500;

/// An action on many entries, about to be taken: set options, then [`count`](Self::count) or [`run`](Self::run) it.
#[must_use = "nothing is done until it is run"]
pub struct Bulk<'a> {
    plan: Plan<'a>,
    progress: Option<Progress<'a>>,
    stop: BoxFuture<'a, ()>,
}

/// What is done to which entries. It stands by itself, as threads can share it: so the whole can run in a task.
struct Plan<'a> {
    topic: &'a KnownTopic,
    action: Action,
    state: EntryState,
    filter: Filter,
    after: Option<Cursor>,
    limit: u64,
    rate: Option<u32>,
    dry: bool,
}

/// Is told how far it is.
type Progress<'a> = Box<dyn FnMut(&BulkReport) + Send + 'a>;

impl KnownTopic {
    /// An action on all of the topic's entries in a state that a filter lets pass.
    ///
    /// Each entry is acted upon once, also where it comes to stand behind others by that. Between counting and acting
    /// others may come or go: what is acted upon matches then.
    ///
    /// ```no_run
    /// use keylapse_console::{Action, Console, EntryState, Filter};
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
    /// Of kind [`Invalid`](keylapse::ErrorKind::Invalid) where the action is not for entries in that state.
    pub fn bulk(&self, action: Action, state: EntryState, filter: Filter) -> Bulk<'_> {
        let (after, limit, rate, dry) = (None, u64::MAX, None, false);
        let plan = Plan { topic: self, action, state, filter, after, limit, rate, dry };
        Bulk { plan, progress: None, stop: std::future::pending().boxed() }
    }
}

impl<'a> Bulk<'a> {
    /// Acts upon no more than so many.
    pub fn limit(mut self, limit: u64) -> Self {
        self.plan.limit = limit;
        self
    }

    /// Acts upon no more than so many a second.
    pub fn rate(mut self, per_second: u32) -> Self {
        self.plan.rate = (per_second > 0).then_some(per_second);
        self
    }

    /// Begins behind where another has ended.
    pub fn after(mut self, cursor: Option<Cursor>) -> Self {
        self.plan.after = cursor;
        self
    }

    /// Does all but the last step.
    pub fn dry_run(mut self, dry: bool) -> Self {
        self.plan.dry = dry;
        self
    }

    /// Is told after each step how far it is: a tenth of a second's share of a [`rate`](Self::rate), or up to 500 entries.
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

    /// Goes through all that match. Where a server is lost on the way, it ends and reports what was done until then.
    ///
    /// # Errors
    /// When the action is not for entries in that state, or the first entries cannot be read. An entry of which the server
    /// refuses the action is counted and no error.
    pub async fn run(self) -> Result<BulkReport> {
        let Self { plan, mut progress, stop } = self;
        plan.check()?;
        let mut report = BulkReport { cursor: plan.after.clone(), ..BulkReport::default() };
        let (mut pace, mut met) = (Pace::new(plan.rate, PAGE, stop), HashSet::new());
        loop {
            if !pace.goes_on(0).await {
                report.end = BulkEnd::Stopped;
                return Ok(report);
            }
            let room = usize::try_from(plan.limit - report.matched).unwrap_or(usize::MAX);
            let page = match plan.page(report.cursor.as_ref(), room).await {
                Err(error) if report.matched > 0 && error.is_away() => return Ok(report.lose(&error)),
                page => page?,
            };
            // What was moved may be met with once more.
            let fresh =
                page.entries.into_iter().filter(|entry| met.insert(fnv1a(entry.name.iter().copied())));
            let fresh: Vec<_> = fresh.take(room).collect();
            let mut tell = |report: &BulkReport| progress.iter_mut().for_each(|tell| tell(report));
            if let Err(lost) = plan.act(&fresh, &mut pace, &mut report, &mut tell).await {
                return Ok(report.lose(&lost));
            }
            if report.end == BulkEnd::Whole {
                report.cursor = page.next;
            }
            if report.end != BulkEnd::Whole || report.cursor.is_none() || report.matched >= plan.limit {
                return Ok(report);
            }
        }
    }
}

impl Plan<'_> {
    async fn page(&self, from: Option<&Cursor>, room: usize) -> Result<Page> {
        let read = |count| self.topic.filtered(self.state, &self.filter, from, count, None);
        let page = read(PAGE).await?;
        // Where it ends is to have nothing before it that the limit has left out.
        if page.entries.len() > room { read(room).await } else { Ok(page) }
    }

    /// An error if a server was lost.
    async fn act(
        &self,
        entries: &[Entry],
        pace: &mut Pace<'_>,
        report: &mut BulkReport,
        tell: &mut (impl FnMut(&BulkReport) + Send),
    ) -> Result<(), Error> {
        if self.dry {
            report.matched += entries.len() as u64;
            tell(report);
            return Ok(());
        }
        for some in entries.chunks(pace.chunk) {
            if !pace.goes_on(some.len()).await {
                report.end = BulkEnd::Stopped;
                return Ok(());
            }
            let lost = OnceLock::new();
            // Those that are under way end; each of the others would only wait in vain.
            // By their places: a task can have what borrows nothing in a closure's argument.
            let places = iter(0..some.len()).take_while(|_| ready(lost.get().is_none()));
            let acts = places.map(|at| self.act_on(&some[at]));
            let ended = acts.buffer_unordered(AT_A_TIME).for_each(|became| {
                if let Err(error) = &became
                    && error.is_away()
                {
                    _ = lost.set(error.clone());
                }
                report.add(became);
                ready(())
            });
            ended.await;
            if let Some(lost) = lost.into_inner() {
                return Err(lost);
            }
            report.cursor = some.last().and_then(Cursor::behind).or(report.cursor.take());
            tell(report);
        }
        Ok(())
    }

    async fn act_on(&self, entry: &Entry) -> Result<Became> {
        Ok(self.topic.become_of(self.action, &entry.key, Some(entry)).await?.0)
    }

    fn check(&self) -> Result<()> {
        if Action::of(self.state).iter().any(|action| action.as_str() == self.action.as_str()) {
            return Ok(());
        }
        let state = self.state.as_str();
        Err(Error::invalid(format!("{:?} is not for entries that are {state}", self.action)))
    }
}

impl std::fmt::Debug for Bulk<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Plan { topic, action, filter, .. } = &self.plan;
        write!(f, "Bulk({}, {action:?}, {filter})", topic.name())
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
    /// With steps of at most so many entries.
    fn new(rate: Option<u32>, most: usize, stop: BoxFuture<'a, ()>) -> Self {
        // Ten steps a second, where the rate is above that.
        let chunk = rate.map_or(most, |rate| (rate as usize / 10).clamp(1, most));
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

/// Failures that a report names.
const NAMED: usize = 10;

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
    /// How many there were of each outcome: by [`Done::outcome`](crate::Done::outcome), and `failed`.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// The first ten failures.
    pub errors: Vec<String>,
    /// How it has ended.
    pub end: BulkEnd,
    /// Where it has ended: to go on from there, if it was cut short.
    #[serde(serialize_with = "cursor_as_text")]
    pub cursor: Option<Cursor>,
}

fn cursor_as_text<S: serde::Serializer>(
    cursor: &Option<Cursor>,
    out: S,
) -> std::result::Result<S::Ok, S::Error> {
    cursor.as_ref().map(ToString::to_string).serialize(out)
}

/// How a bulk has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BulkEnd {
    /// All that matches was gone through, or as much as the limit lets through.
    #[default]
    Whole,
    /// It was [told to stop](Bulk::until).
    Stopped,
    /// A server was lost on the way: [`BulkReport::errors`] ends with why.
    Lost,
}

impl BulkReport {
    fn add(&mut self, became: Result<Became>) {
        self.matched += 1;
        let (count, code) = match became {
            Ok(Became { was_done: true, code, .. }) => (&mut self.done, code),
            Ok(Became { code, .. }) => (&mut self.skipped, code),
            Err(error) => {
                self.name(&error);
                (&mut self.failed, "failed")
            }
        };
        *count += 1;
        *self.outcomes.entry(code).or_default() += 1;
    }

    /// Ends it where a server was lost.
    fn lose(mut self, error: &Error) -> Self {
        self.end = BulkEnd::Lost;
        self.errors.truncate(NAMED - 1);
        self.name(error);
        self
    }

    fn name(&mut self, error: &Error) {
        if self.errors.len() < NAMED {
            self.errors.push(error.to_string());
        }
    }
}

impl std::fmt::Display for BulkReport {
    /// The last line of a command: `matched=3 done=2 skipped=1 failed=0`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { matched, done, skipped, failed, .. } = self;
        write!(f, "matched={matched} done={done} skipped={skipped} failed={failed}")
    }
}
