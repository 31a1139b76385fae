//! The state of a lease, which its attempt, its handler and the renewal of leases share.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::boottime::now;
use crate::lock::lock;

/// How long a handler may run after its lease was lost, to detect this. Also how long it may run after its timeout
/// before the listener gives up its lease.
pub(crate) const HANDLER_STOP_GRACE: Duration = Duration::from_secs(1);

/// A notice to an attempt. A later variant overrides an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum LeaseNotice {
    /// Continue.
    Nothing,
    /// The listener stops: end at the next await. The lease is renewed until then, and the timer is released.
    Stop,
    /// The lease is lost: end within [`HANDLER_STOP_GRACE`].
    Lost,
    /// The lease is lost: end immediately.
    Gone,
}

/// The phase of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Claimed, and perhaps queued on the runtime of the handlers. Nothing relies on the lease yet.
    Waiting,
    /// The handler relies on the lease.
    Running,
    /// The handler has ended, and its result is being settled.
    Ended,
}

/// The state of a lease in the process that holds it.
#[derive(Debug)]
pub(crate) struct LeaseState {
    /// How long the lease is trusted, counted from when the last claim or renewal was sent. A slow answer therefore
    /// cannot extend the trust.
    trust: Duration,
    notice: AtomicU8,
    changed: Notify,
    times: Mutex<LeaseTimes>,
}

#[derive(Clone, Copy, Debug)]
struct LeaseTimes {
    extended: Instant,
    phase: Phase,
    /// When a started attempt must have ended.
    overdue: Option<Instant>,
}

/// Why a listener gives up a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseLossReason {
    /// It was not extended in time.
    NotExtended,
    /// The handler blocks, or its runtime does.
    Overdue,
}

impl LeaseState {
    /// Creates the lease of a claim that was sent at `sent`.
    pub(crate) fn new(sent: Instant, trust: Duration) -> Self {
        Self {
            trust,
            notice: AtomicU8::new(LeaseNotice::Nothing as u8),
            changed: Notify::new(),
            times: Mutex::new(LeaseTimes { extended: sent, phase: Phase::Waiting, overdue: None }),
        }
    }

    /// Returns whether the handler may rely on the lease. It reads the clock too, because the process may have been
    /// suspended.
    pub(crate) fn is_ours(&self) -> bool {
        !self.has_notice(LeaseNotice::Lost) && self.is_trusted()
    }

    /// Returns whether no other listener can hold the timer, by the local clock.
    pub(crate) fn is_trusted(&self) -> bool {
        now() < lock(&self.times).extended + self.trust
    }

    pub(crate) fn has_notice(&self, what: LeaseNotice) -> bool {
        self.notice.load(Ordering::Acquire) >= what as u8
    }

    pub(crate) fn send_notice(&self, what: LeaseNotice) {
        if self.notice.fetch_max(what as u8, Ordering::AcqRel) < what as u8 {
            self.changed.notify_waiters();
        }
    }

    /// Waits for this notice or a later variant.
    pub(crate) async fn wait_for_notice(&self, what: LeaseNotice) {
        loop {
            let changed = self.changed.notified(); // registered before the check, so that no notice is lost
            if self.has_notice(what) {
                return;
            }
            changed.await;
        }
    }

    pub(crate) fn extended(&self) -> Instant {
        lock(&self.times).extended
    }

    /// Extends the lease by a renewal that was sent at `sent`.
    pub(crate) fn extend(&self, sent: Instant) {
        lock(&self.times).extended = sent;
    }

    pub(crate) fn phase(&self) -> Phase {
        lock(&self.times).phase
    }

    /// Changes the phase of the attempt, which must end within this time.
    pub(crate) fn enter(&self, phase: Phase, within: Option<Duration>) {
        let overdue = within.and_then(|within| now().checked_add(within.saturating_add(HANDLER_STOP_GRACE)));
        let mut times = lock(&self.times);
        (times.phase, times.overdue) = (phase, overdue);
    }

    /// Returns when the listener must give up the lease unless it is renewed or the attempt ends, and the reason.
    pub(crate) fn fails_at(&self) -> Option<(Instant, LeaseLossReason)> {
        let times = *lock(&self.times);
        let untrusted = (times.phase == Phase::Running)
            .then(|| (times.extended + self.trust, LeaseLossReason::NotExtended));
        let overdue = times.overdue.map(|at| (at, LeaseLossReason::Overdue));
        untrusted.into_iter().chain(overdue).min_by_key(|(at, _)| *at)
    }
}
