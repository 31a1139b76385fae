//! What is known of a lease: by its attempt, its handler, and those who keep it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::boottime::now;
use crate::lock::lock;

/// How long a handler may go on after its lease was lost, to notice it; and after its timeout, before its lease is
/// taken from it.
pub(crate) const PARTING: Duration = Duration::from_secs(1);

/// What an attempt is told. Later ones outdo earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Told {
    /// Go on.
    Nothing,
    /// The listener stops: end at the next await. The lease is kept until then, and handed back.
    Stop,
    /// The timer is not ours any more: notice it, within [`PARTING`].
    Lost,
    /// The same, at once.
    Gone,
}

/// How far an attempt has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Claimed, and perhaps left to the runtime of the handlers. Nobody relies on the lease yet.
    Waiting,
    /// The handler relies on the lease.
    Running,
    /// What it has come to is being settled.
    Ended,
}

/// A lease, as the one who holds it knows it.
#[derive(Debug)]
pub(crate) struct LeaseState {
    /// For how long it is trusted, from when the request was sent that last extended it. Counting from its start, a
    /// slow answer cannot stretch our trust.
    trust: Duration,
    told: AtomicU8,
    tells: Notify,
    times: Mutex<Times>,
}

#[derive(Clone, Copy, Debug)]
struct Times {
    extended: Instant,
    phase: Phase,
    /// When an attempt that was started must have ended.
    overdue: Option<Instant>,
}

/// Why a lease has to be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It was not extended in time.
    NotExtended,
    /// The handler blocks, or its runtime does.
    Overdue,
}

impl LeaseState {
    /// Of a claim that was sent then.
    pub(crate) fn new(sent: Instant, trust: Duration) -> Self {
        Self {
            trust,
            told: AtomicU8::new(Told::Nothing as u8),
            tells: Notify::new(),
            times: Mutex::new(Times { extended: sent, phase: Phase::Waiting, overdue: None }),
        }
    }

    /// Whether the handler may rely on it. Asks the clock, too: the process may have stood still.
    pub(crate) fn is_ours(&self) -> bool {
        !self.is_told(Told::Lost) && self.is_trusted()
    }

    /// Whether nobody else can have the timer, by our clock.
    pub(crate) fn is_trusted(&self) -> bool {
        now() < lock(&self.times).extended + self.trust
    }

    pub(crate) fn is_told(&self, what: Told) -> bool {
        self.told.load(Ordering::Acquire) >= what as u8
    }

    pub(crate) fn tell(&self, what: Told) {
        if self.told.fetch_max(what as u8, Ordering::AcqRel) < what as u8 {
            self.tells.notify_waiters();
        }
    }

    /// Returns once it is told this, or more.
    pub(crate) async fn until_told(&self, what: Told) {
        loop {
            let tells = self.tells.notified(); // before the question
            if self.is_told(what) {
                return;
            }
            tells.await;
        }
    }

    pub(crate) fn extended(&self) -> Instant {
        lock(&self.times).extended
    }

    /// It was extended by a request that was sent then.
    pub(crate) fn extend(&self, sent: Instant) {
        lock(&self.times).extended = sent;
    }

    pub(crate) fn phase(&self) -> Phase {
        lock(&self.times).phase
    }

    /// The attempt goes on to this phase; within this time it must be over.
    pub(crate) fn enter(&self, phase: Phase, within: Option<Duration>) {
        let overdue = within.and_then(|within| now().checked_add(within.saturating_add(PARTING)));
        let mut times = lock(&self.times);
        (times.phase, times.overdue) = (phase, overdue);
    }

    /// When it has to be given up if nothing happens, and why.
    pub(crate) fn fails_at(&self) -> Option<(Instant, Fault)> {
        let times = *lock(&self.times);
        let untrusted =
            (times.phase == Phase::Running).then(|| (times.extended + self.trust, Fault::NotExtended));
        let overdue = times.overdue.map(|at| (at, Fault::Overdue));
        untrusted.into_iter().chain(overdue).min_by_key(|(at, _)| *at)
    }
}
