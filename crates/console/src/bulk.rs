//! One action on all entries that match a filter.
//!
//! Counting and acting read the same pages with the same filter. A dry run leaves out only the last step, so it counts the
//! entries on which a real run would act.

use std::collections::{BTreeMap, HashSet};
use std::future::ready;
use std::sync::OnceLock;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::iter;
use futures::{FutureExt, StreamExt};
use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use crate::act::ActionOutcome;
use crate::error::{Error, Result};
use crate::wire::names::fnv1a;
use crate::{Action, Cursor, Entry, EntryState, Filter, Page, TopicHandle};

const MAX_CONCURRENT_ACTIONS: usize = 32;
const ENTRIES_PER_PAGE: usize = 500;

/// A request to act on many entries. Set options, then [`count`](Self::count) or [`run`](Self::run) it.
#[must_use = "the request does nothing until it is run"]
pub struct Bulk<'a> {
    plan: Plan<'a>,
    progress: Option<ProgressCallback<'a>>,
    stop: BoxFuture<'a, ()>,
}

/// The part of a request that threads can share, so that the whole request can run in a spawned task.
struct Plan<'a> {
    topic: &'a TopicHandle,
    action: Action,
    state: EntryState,
    filter: Filter,
    after: Option<Cursor>,
    limit: u64,
    rate: Option<u32>,
    dry: bool,
}

type ProgressCallback<'a> = Box<dyn FnMut(&BulkReport) + Send + 'a>;

impl TopicHandle {
    /// Prepares an action on all entries of the topic that are in a state and match a filter.
    ///
    /// Each entry is acted on once, even if the action moves it in the index. The matching entries can change between
    /// [`count`](Bulk::count) and [`run`](Bulk::run); the run acts on those that match then.
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
    pub fn bulk(&self, action: Action, state: EntryState, filter: Filter) -> Bulk<'_> {
        let (after, limit, rate, dry) = (None, u64::MAX, None, false);
        let plan = Plan { topic: self, action, state, filter, after, limit, rate, dry };
        Bulk { plan, progress: None, stop: std::future::pending().boxed() }
    }
}

impl<'a> Bulk<'a> {
    /// Sets the highest number of entries. The default is no limit.
    pub fn limit(mut self, limit: u64) -> Self {
        self.plan.limit = limit;
        self
    }

    /// Sets the highest number of entries per second. The default, and 0, is no limit.
    pub fn rate(mut self, per_second: u32) -> Self {
        self.plan.rate = (per_second > 0).then_some(per_second);
        self
    }

    /// Continues at the [cursor](BulkReport::cursor) of an earlier run.
    pub fn after(mut self, cursor: Option<Cursor>) -> Self {
        self.plan.after = cursor;
        self
    }

    /// Sets whether the run only counts the matching entries.
    pub fn dry_run(mut self, dry: bool) -> Self {
        self.plan.dry = dry;
        self
    }

    /// Sets a function that receives a report after each step. A step has up to 500 entries, or those of a tenth of a
    /// second at the [`rate`](Self::rate).
    pub fn progress(mut self, callback: impl FnMut(&BulkReport) + Send + 'a) -> Self {
        self.progress = Some(Box::new(callback));
        self
    }

    /// Ends the run early when `stop` completes, after the current step. A step has up to 500 entries, or those of a tenth
    /// of a second at the [`rate`](Self::rate). The report has the cursor at which another run can continue.
    pub fn until(mut self, stop: impl Future<Output = ()> + Send + 'a) -> Self {
        self.stop = stop.boxed();
        self
    }

    /// Returns the number of matching entries, up to the limit.
    ///
    /// # Errors
    /// Returns the errors of [`run`](Self::run).
    pub async fn count(self) -> Result<u64> {
        Ok(self.dry_run(true).run().await?.matched)
    }

    /// Acts on all matching entries. If a server becomes unavailable during the run, the report covers the entries until
    /// then. Entries for which the server refuses the action are counted in the report.
    ///
    /// # Errors
    /// Returns an error of kind [`Invalid`](keylapse::ErrorKind::Invalid) if the action does not apply to entries in this
    /// state. Returns an error if the first entries cannot be read.
    pub async fn run(self) -> Result<BulkReport> {
        let Self { plan, mut progress, stop } = self;
        plan.check()?;
        let mut report = BulkReport { cursor: plan.after.clone(), ..BulkReport::default() };
        let (mut pace, mut met) = (BulkThrottle::new(plan.rate, ENTRIES_PER_PAGE, stop), HashSet::new());
        loop {
            if !pace.wait_turn(0).await {
                report.end = BulkEnd::Stopped;
                return Ok(report);
            }
            let room = usize::try_from(plan.limit - report.matched).unwrap_or(usize::MAX);
            let page = match plan.page(report.cursor.as_ref(), room).await {
                Err(error) if report.matched > 0 && error.is_server_unavailable() => {
                    return Ok(report.lose(&error));
                }
                page => page?,
            };
            // An entry that the action has moved in the index can appear on a later page.
            let fresh =
                page.entries.into_iter().filter(|entry| met.insert(fnv1a(entry.name.iter().copied())));
            let fresh: Vec<_> = fresh.take(room).collect();
            let mut notify = |report: &BulkReport| progress.iter_mut().for_each(|callback| callback(report));
            if let Err(lost) = plan.act(&fresh, &mut pace, &mut report, &mut notify).await {
                return Ok(report.lose(&lost));
            }
            if report.end == BulkEnd::Completed {
                report.cursor = page.next;
            }
            if report.end != BulkEnd::Completed || report.cursor.is_none() || report.matched >= plan.limit {
                return Ok(report);
            }
        }
    }
}

impl Plan<'_> {
    async fn page(&self, from: Option<&Cursor>, room: usize) -> Result<Page> {
        let read = |count| self.topic.filtered(self.state, &self.filter, from, count, None);
        let page = read(ENTRIES_PER_PAGE).await?;
        // The page's cursor must not skip entries that the limit leaves out.
        if page.entries.len() > room { read(room).await } else { Ok(page) }
    }

    /// Acts on entries. Returns an error only if a server is unavailable.
    async fn act(
        &self,
        entries: &[Entry],
        pace: &mut BulkThrottle<'_>,
        report: &mut BulkReport,
        notify: &mut (impl FnMut(&BulkReport) + Send),
    ) -> Result<(), Error> {
        if self.dry {
            report.matched += entries.len() as u64;
            notify(report);
            return Ok(());
        }
        for some in entries.chunks(pace.chunk) {
            if !pace.wait_turn(some.len()).await {
                report.end = BulkEnd::Stopped;
                return Ok(());
            }
            let lost = OnceLock::new();
            // After the loss of a server, no further action starts: it would wait until the client gives up. The stream has
            // indexes instead of entries, because closures with borrowed arguments keep the future from being `Send`.
            let places = iter(0..some.len()).take_while(|_| ready(lost.get().is_none()));
            let acts = places.map(|at| self.act_on(&some[at]));
            let ended = acts.buffer_unordered(MAX_CONCURRENT_ACTIONS).for_each(|became| {
                if let Err(error) = &became
                    && error.is_server_unavailable()
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
            notify(report);
        }
        Ok(())
    }

    async fn act_on(&self, entry: &Entry) -> Result<ActionOutcome> {
        Ok(self.topic.apply_action(self.action, &entry.key, Some(entry)).await?.0)
    }

    fn check(&self) -> Result<()> {
        if Action::of(self.state).iter().any(|action| action.as_str() == self.action.as_str()) {
            return Ok(());
        }
        let state = self.state.as_str();
        Err(Error::invalid(format!("{} does not apply to entries that are {state}", self.action.as_str())))
    }
}

impl std::fmt::Debug for Bulk<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Plan { topic, action, filter, .. } = &self.plan;
        write!(f, "Bulk({}, {action:?}, {filter})", topic.name())
    }
}

/// Limits the rate of a bulk run, and stops it on request.
struct BulkThrottle<'a> {
    each: Option<Duration>,
    next: Instant,
    /// The number of entries between two waits.
    chunk: usize,
    stop: BoxFuture<'a, ()>,
}

impl<'a> BulkThrottle<'a> {
    /// Creates a throttle with at most `most` entries between two waits.
    fn new(rate: Option<u32>, most: usize, stop: BoxFuture<'a, ()>) -> Self {
        // Ten waits per second, unless the rate is lower.
        let chunk = rate.map_or(most, |rate| (rate as usize / 10).clamp(1, most));
        let each = rate.map(|rate| Duration::from_secs(1) / rate);
        Self { each, next: Instant::now(), chunk, stop }
    }

    /// Waits until the rate allows so many entries. Returns false if the run has to stop.
    async fn wait_turn(&mut self, entries: usize) -> bool {
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

/// How many errors a report lists.
const MAX_REPORTED_ERRORS: usize = 10;

/// The result of a bulk run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct BulkReport {
    /// Entries that match the filter, up to the limit.
    pub matched: u64,
    /// Entries on which the action took place. A dry run has none.
    pub done: u64,
    /// Entries that did not change, because they were gone or the action did not apply.
    pub skipped: u64,
    /// Entries for which the server refused the action.
    pub failed: u64,
    /// The number of entries by [`ActionResult::outcome`](crate::ActionResult::outcome), or `failed`.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// The first errors, at most ten.
    pub errors: Vec<String>,
    /// How the run ended.
    pub end: BulkEnd,
    /// The position at which another run can continue, if entries are left.
    #[serde(serialize_with = "cursor_as_text")]
    pub cursor: Option<Cursor>,
}

fn cursor_as_text<S: serde::Serializer>(
    cursor: &Option<Cursor>,
    out: S,
) -> std::result::Result<S::Ok, S::Error> {
    cursor.as_ref().map(ToString::to_string).serialize(out)
}

/// How a bulk run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BulkEnd {
    /// The run reached the last entry or the limit.
    #[default]
    Completed,
    /// The run received [a request to stop](Bulk::until).
    Stopped,
    /// A server became unavailable. The last of [`BulkReport::errors`] has the reason.
    ServerLost,
}

impl BulkReport {
    fn add(&mut self, became: Result<ActionOutcome>) {
        self.matched += 1;
        let (count, code) = match became {
            Ok(ActionOutcome { was_done: true, code, .. }) => (&mut self.done, code),
            Ok(ActionOutcome { code, .. }) => (&mut self.skipped, code),
            Err(error) => {
                self.name(&error);
                (&mut self.failed, "failed")
            }
        };
        *count += 1;
        *self.outcomes.entry(code).or_default() += 1;
    }

    /// Ends the report with the loss of a server.
    fn lose(mut self, error: &Error) -> Self {
        self.end = BulkEnd::ServerLost;
        self.errors.truncate(MAX_REPORTED_ERRORS - 1);
        self.name(error);
        self
    }

    fn name(&mut self, error: &Error) {
        if self.errors.len() < MAX_REPORTED_ERRORS {
            self.errors.push(error.to_string());
        }
    }
}

impl std::fmt::Display for BulkReport {
    /// Writes the last line of a command: `matched=3 done=2 skipped=1 failed=0`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { matched, done, skipped, failed, .. } = self;
        write!(f, "matched={matched} done={done} skipped={skipped} failed={failed}")
    }
}
