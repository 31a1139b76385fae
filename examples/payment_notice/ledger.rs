//! What was promised and what happened, written down by those who saw it, and judged afterwards.
//!
//! Times are the server's, read on a connection of our own. Nothing that the library says about
//! itself is taken for granted, except what it promises: the receipt of an arm.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use keylapse::handler::LapseSource;
use keylapse::timers::{ArmingId, MarkerKey};
use keylapse::{Lapse, Receipt};

use crate::merchants::{Merchant, Notice};

/// The stories of all armings.
#[derive(Default)]
pub(crate) struct Ledger(Mutex<HashMap<ArmingId, Story>>);

/// What is known of one arming. A handler may start before the producer has its receipt, so either
/// may come first.
#[derive(Default)]
pub(crate) struct Story {
    /// The trade, once the arming was acknowledged.
    trade: Option<u64>,
    /// When the key expires that other programs can see; none if it was due at once.
    key_expires: Option<SystemTime>,
    bounds: Vec<Bound>,
    withdrawn: Option<Withdrawn>,
    runs: Vec<Run>,
    handled: bool,
}

/// What starts after `since` must not start before `until`, unless a later bound says otherwise.
#[derive(Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) since: SystemTime,
    pub(crate) until: SystemTime,
}

/// An arming that the producer took back.
#[derive(Clone, Copy)]
pub(crate) struct Withdrawn {
    pub(crate) by: By,
    /// From when on no attempt may start; none if one was running.
    pub(crate) since: Option<SystemTime>,
}

/// What withdrew an arming.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Cancel,
    Rearm,
}

/// What others know.
#[derive(Default)]
pub(crate) struct Evidence {
    /// The armings that are dead letters.
    pub(crate) dead: HashSet<ArmingId>,
    /// The idempotency keys of what merchants have booked.
    pub(crate) booked: HashSet<String>,
}

/// A key that expired when a notice was due for the first time.
pub(crate) struct Expiry {
    pub(crate) trade: u64,
    pub(crate) at: SystemTime,
    /// When a key of this name expired next, for a retry or another notice.
    pub(crate) next: Option<SystemTime>,
    /// Whether the notice was run.
    pub(crate) ran: bool,
}

/// One start of the handler.
struct Run {
    /// The idempotency key that the merchant was sent.
    id: String,
    attempt: u32,
    /// By the server's clock, asked by the handler when it had started: if even this is before the
    /// deadline, the start was.
    at: SystemTime,
    deadline: SystemTime,
    source: LapseSource,
    redelivered: bool,
}

impl Ledger {
    /// The server has acknowledged an arming that was asked for at this time, with this delay.
    pub(crate) fn armed(&self, receipt: &Receipt, trade: u64, at: SystemTime, delay: Duration) {
        let mut stories = self.lock();
        let story = stories.entry(receipt.id).or_default();
        story.trade = Some(trade);
        // What is due at once may have a key for less than a millisecond: nobody would wait for that.
        let waits = receipt.marker == MarkerKey::Set && !delay.is_zero();
        story.key_expires = waits.then_some(receipt.deadline);
        story.bounds.push(Bound { since: SystemTime::UNIX_EPOCH, until: at + delay });
    }

    /// An arming was moved to this deadline, and its key with it.
    pub(crate) fn rescheduled(&self, id: ArmingId, deadline: SystemTime, bound: Bound) {
        let mut stories = self.lock();
        let story = stories.entry(id).or_default();
        story.bounds.push(bound);
        // Else it was a retry that was moved.
        if story.runs.is_empty() {
            story.key_expires = Some(deadline);
        }
    }

    /// An arming was taken back.
    pub(crate) fn withdrawn(&self, id: ArmingId, withdrawn: Withdrawn) {
        self.lock().entry(id).or_default().withdrawn = Some(withdrawn);
    }

    /// A handler has started.
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

    /// The merchant took the notice.
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

    /// The keys that expired when a notice was due for the first time.
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
    /// Neither handled nor dead. At the end these are the lost.
    pub(crate) open: usize,
    pub(crate) cancelled: usize,
    pub(crate) rearmed: usize,
    /// Attempts after the first.
    pub(crate) retried: usize,
    /// Attempts that no timer and no event brought, but a sweep of the index.
    pub(crate) swept: usize,
    /// How often what an arming stands for was booked after the first time.
    pub(crate) duplicates: usize,
    pub(crate) early: usize,
    /// Attempts that started although their arming was withdrawn.
    pub(crate) stale: usize,
    /// What brought each attempt, and how late it was.
    pub(crate) starts: Vec<(LapseSource, Duration)>,
    /// What should not have happened, in words.
    pub(crate) complaints: Vec<String>,
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
                // The worst goes first.
                let lost = format!("trade {}: neither taken nor dead", story.trade.unwrap_or_default());
                self.complaints.insert(0, lost);
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
        self.complaints.push(format!("trade {trade}: booked {} times", keys.len()));
    }

    fn check(&mut self, story: &Story, place: usize, run: &Run) {
        let mut complain = |what: &str| {
            let trade = story.trade.unwrap_or_default();
            self.complaints.push(format!("trade {trade}, attempt {} ({}): {what}", run.attempt, run.id));
        };
        if !run.redelivered && story.runs[..place].iter().any(|other| other.attempt == run.attempt) {
            complain("ran twice");
        }
        if let Some(by) = story.early_by(run) {
            self.early += 1;
            complain(&format!("started {by:?} early"));
        }
        if story.withdrawn.and_then(|withdrawn| withdrawn.since).is_some_and(|since| run.at > since) {
            self.stale += 1;
            complain("started after it was withdrawn");
        }
    }
}

impl Story {
    /// By how much a run came before the latest of all times that it had to wait for.
    fn early_by(&self, run: &Run) -> Option<Duration> {
        let bound = self.bounds.iter().rfind(|bound| run.at > bound.since);
        let before = self.runs.iter().filter(|before| before.attempt + 1 == run.attempt);
        let retries = before.map(|before| before.at + crate::ladder().delay(before.attempt));
        let bounds = bound.map(|bound| bound.until).into_iter();
        let allowed = bounds.chain(retries).chain([run.deadline]).max()?;
        allowed.duration_since(run.at).ok().filter(|by| !by.is_zero())
    }
}
