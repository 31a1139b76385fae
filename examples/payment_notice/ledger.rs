//! Records the promises of the library and the events that follow, and checks them at the end.
//!
//! Times are the server's, read on a separate connection. The library's own reports are not trusted, except the receipts of
//! armings, which are its promises.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use keylapse::handler::LapseSource;
use keylapse::timers::{ArmingId, MarkerKey};
use keylapse::{Lapse, Receipt};

use crate::merchants::{Merchant, Notice};

/// The history of each arming.
#[derive(Default)]
pub(crate) struct Ledger(Mutex<HashMap<ArmingId, Story>>);

/// The history of one arming. Its handler may start before the producer has the receipt.
#[derive(Default)]
pub(crate) struct Story {
    /// The trade, once the arming was acknowledged.
    trade: Option<u64>,
    /// When the marker key expires; `None` if the notice was due immediately.
    key_expires: Option<SystemTime>,
    bounds: Vec<Bound>,
    withdrawn: Option<Withdrawn>,
    runs: Vec<Run>,
    handled: bool,
}

/// An attempt that starts after `since` must not start before `until`, unless a later bound applies.
#[derive(Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) since: SystemTime,
    pub(crate) until: SystemTime,
}

/// The withdrawal of an arming by the producer.
#[derive(Clone, Copy)]
pub(crate) struct Withdrawn {
    pub(crate) by: By,
    /// No attempt may start after this time; `None` if one was running.
    pub(crate) since: Option<SystemTime>,
}

/// The call that withdrew an arming.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Cancel,
    Rearm,
}

/// Facts from other sources than the library's handlers.
#[derive(Default)]
pub(crate) struct Evidence {
    /// The armings that are dead letters.
    pub(crate) dead: HashSet<ArmingId>,
    /// The idempotency keys of the notices that merchants have booked.
    pub(crate) booked: HashSet<String>,
}

/// A key that expired when a notice was due for the first time.
pub(crate) struct Expiry {
    pub(crate) trade: u64,
    pub(crate) at: SystemTime,
    /// When a key with this name expired next, for a retry or another notice.
    pub(crate) next: Option<SystemTime>,
    /// `true` if keylapse ran the notice.
    pub(crate) ran: bool,
}

/// One start of the handler.
struct Run {
    /// The idempotency key that the merchant was sent.
    id: String,
    attempt: u32,
    /// The server's clock, read after the start. If even this time is before the deadline, the start was early.
    at: SystemTime,
    deadline: SystemTime,
    source: LapseSource,
    redelivered: bool,
}

impl Ledger {
    /// Records an acknowledged arming, which was requested at this time with this delay.
    pub(crate) fn armed(&self, receipt: &Receipt, trade: u64, at: SystemTime, delay: Duration) {
        let mut stories = self.lock();
        let story = stories.entry(receipt.id).or_default();
        story.trade = Some(trade);
        // A notice that is due immediately has a marker key for less than a millisecond, which is not compared.
        let waits = receipt.marker == MarkerKey::Set && !delay.is_zero();
        story.key_expires = waits.then_some(receipt.deadline);
        story.bounds.push(Bound { since: SystemTime::UNIX_EPOCH, until: at + delay });
    }

    /// Records that an arming and its marker key were moved to this deadline.
    pub(crate) fn rescheduled(&self, id: ArmingId, deadline: SystemTime, bound: Bound) {
        let mut stories = self.lock();
        let story = stories.entry(id).or_default();
        story.bounds.push(bound);
        // After an attempt it was a retry that moved.
        if story.runs.is_empty() {
            story.key_expires = Some(deadline);
        }
    }

    /// Records the withdrawal of an arming.
    pub(crate) fn withdrawn(&self, id: ArmingId, withdrawn: Withdrawn) {
        self.lock().entry(id).or_default().withdrawn = Some(withdrawn);
    }

    /// Records the start of an attempt.
    pub(crate) fn started(&self, lapse: &Lapse<Notice>, at: SystemTime) {
        let run = Run {
            id: lapse.id(),
            attempt: lapse.attempt(),
            at,
            deadline: lapse.deadline(),
            source: lapse.source(),
            redelivered: lapse.is_redelivered(),
        };
        self.lock().entry(lapse.arming()).or_default().runs.push(run);
    }

    /// Records that the merchant accepted the notice.
    pub(crate) fn handled(&self, id: ArmingId) {
        self.lock().entry(id).or_default().handled = true;
    }

    /// Adds up the armings for these merchants.
    pub(crate) fn tally(&self, of: impl Fn(Merchant) -> bool, evidence: &Evidence) -> Tally {
        let mut tally = Tally::default();
        for (id, story) in self.lock().iter() {
            if story.trade.is_some_and(|trade| of(Merchant::of(trade))) {
                tally.add(story, evidence.dead.contains(id));
                tally.bookings(story, &evidence.booked);
            }
        }
        tally
    }

    /// Returns the keys that expired when a notice was due for the first time.
    pub(crate) fn expiries(&self) -> Vec<Expiry> {
        let stories = self.lock();
        let mut deadlines: HashMap<u64, BTreeSet<SystemTime>> = HashMap::new();
        for story in stories.values() {
            let all = story.runs.iter().map(|run| run.deadline).chain(story.key_expires);
            deadlines.entry(story.trade.unwrap_or_default()).or_default().extend(all);
        }
        let expiry = |story: &Story| {
            let (trade, at) = (story.trade?, story.key_expires?);
            let ran = !story.runs.is_empty();
            let next =
                deadlines[&trade].range((ops::Bound::Excluded(at), ops::Bound::Unbounded)).next().copied();
            (ran || story.withdrawn.is_none()).then_some(Expiry { trade, at, next, ran })
        };
        stories.values().filter_map(expiry).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ArmingId, Story>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sums over armings.
#[derive(Default)]
pub(crate) struct Tally {
    /// Acknowledged and not withdrawn: `handled + dead + open`.
    pub(crate) armed: usize,
    pub(crate) handled: usize,
    pub(crate) dead: usize,
    /// Neither handled nor dead. At the end these are lost.
    pub(crate) open: usize,
    pub(crate) cancelled: usize,
    pub(crate) rearmed: usize,
    /// Attempts after the first.
    pub(crate) retried: usize,
    /// Attempts whose timer was found by a sweep of the index, and not by a listener's timer or an event.
    pub(crate) swept: usize,
    /// Bookings of a notice after its first one.
    pub(crate) duplicates: usize,
    pub(crate) early: usize,
    /// Attempts that started although their arming was withdrawn.
    pub(crate) stale: usize,
    /// The source and the lateness of each attempt.
    pub(crate) starts: Vec<(LapseSource, Duration)>,
    /// Violations of guarantees, as text.
    pub(crate) violations: Vec<String>,
}

impl Tally {
    fn add(&mut self, story: &Story, is_dead: bool) {
        match story.withdrawn {
            _ if story.handled => self.handled += 1,
            _ if is_dead => self.dead += 1,
            Some(Withdrawn { by: By::Cancel, .. }) => self.cancelled += 1,
            Some(Withdrawn { by: By::Rearm, .. }) => self.rearmed += 1,
            None => {
                self.open += 1;
                // A lost notice is the worst violation, and is printed first.
                let lost = format!("trade {}: neither handled nor dead", story.trade.unwrap_or_default());
                self.violations.insert(0, lost);
            }
        }
        self.armed = self.handled + self.dead + self.open;
        for (place, run) in story.runs.iter().enumerate() {
            self.retried += usize::from(run.attempt > 1);
            self.swept += usize::from(run.source == LapseSource::Sweep);
            self.starts.push((run.source, run.at.duration_since(run.deadline).unwrap_or_default()));
            self.check(story, place, run);
        }
    }

    fn bookings(&mut self, story: &Story, booked: &HashSet<String>) {
        let keys: HashSet<_> =
            story.runs.iter().map(|run| &run.id).filter(|id| booked.contains(*id)).collect();
        let Some(doubles) = keys.len().checked_sub(1).filter(|doubles| *doubles > 0) else { return };
        self.duplicates += doubles;
        let trade = story.trade.unwrap_or_default();
        self.violations.push(format!("trade {trade}: booked {} times", keys.len()));
    }

    fn check(&mut self, story: &Story, place: usize, run: &Run) {
        let mut add_violation = |what: &str| {
            let trade = story.trade.unwrap_or_default();
            self.violations.push(format!("trade {trade}, attempt {} ({}): {what}", run.attempt, run.id));
        };
        if !run.redelivered && story.runs[..place].iter().any(|other| other.attempt == run.attempt) {
            add_violation("ran twice");
        }
        if let Some(by) = story.early_by(run) {
            self.early += 1;
            add_violation(&format!("started {by:?} early"));
        }
        if story.withdrawn.and_then(|withdrawn| withdrawn.since).is_some_and(|since| run.at > since) {
            self.stale += 1;
            add_violation("started after it was withdrawn");
        }
    }
}

impl Story {
    /// Returns how early an attempt started, before the latest time that it had to wait for.
    fn early_by(&self, run: &Run) -> Option<Duration> {
        let bound = self.bounds.iter().rfind(|bound| run.at > bound.since);
        let before = self.runs.iter().filter(|before| before.attempt + 1 == run.attempt);
        let retries = before.map(|before| before.at + crate::backoff().delay(before.attempt));
        let bounds = bound.map(|bound| bound.until).into_iter();
        let allowed = bounds.chain(retries).chain([run.deadline]).max()?;
        allowed.duration_since(run.at).ok().filter(|by| !by.is_zero())
    }
}
