//! The state of a partition that a listener serves.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::client::Client;
use crate::lapse::LapseSource;
use crate::lock::lock;
use crate::log::LogThrottle;
use crate::runtime::clock::ServerClock;
use crate::runtime::concurrency::ConcurrencyLimiter;
use crate::runtime::deadline::Wakeup;
use crate::runtime::leases::{Lease, Leases};
use crate::runtime::settlement::{LINGER, Settlement, SettlementQueue};
use crate::runtime::{PartitionHealth, RunningTopic};
use crate::time::ClockReading;
use crate::wire::{AttemptEnd, Index, PartitionNames, Store};

/// The least time between two claims that notifications cause.
const NOTIFIED_CLAIM_INTERVAL: Duration = Duration::from_millis(250);
/// How long after its deadline a timer's notification may arrive. Marker keys are checked 2 to 52 ms after their
/// deadlines; the margin is 10 ms.
const MAX_NOTIFICATION_DELAY: Duration = Duration::from_millis(62);

/// The state of a partition that a listener serves.
pub(crate) struct Partition {
    pub(crate) names: PartitionNames,
    pub(crate) store: Store,
    pub(crate) topic: Arc<RunningTopic>,
    pub(crate) limiter: Arc<ConcurrencyLimiter>,
    /// Limits log lines about an unavailable server.
    pub(crate) outage: Arc<LogThrottle>,
    /// Wakes the claimer of the ordinary index.
    pub(crate) due_wakeup: Wakeup,
    /// Wakes the claimer of the quarantine.
    pub(crate) quarantine_wakeup: Wakeup,
    pub(crate) clock: ServerClock,
    /// Wakes the watcher of attached keys.
    pub(crate) check_wakeup: Wakeup,
    pub(crate) leases: Arc<Leases>,
    /// The ends of attempts that wait for the settler.
    pub(crate) outbox: SettlementQueue,
    pub(crate) health: PartitionHealth,
    notifications: Mutex<NotificationThrottle>,
}

/// Decides whether a notification causes a claim.
#[derive(Default)]
struct NotificationThrottle {
    /// Notifications until then are for timers that the last claim has covered.
    covered_until: Option<Instant>,
    /// When the last claim for a notification was made, or is planned.
    last_claim: Option<Instant>,
}

impl Partition {
    /// Creates the state of a partition. All partitions of a listener share `limiter` and `outage`.
    pub(crate) fn new(
        names: PartitionNames,
        topic: Arc<RunningTopic>,
        client: &Client,
        limiter: &Arc<ConcurrencyLimiter>,
        outage: &Arc<LogThrottle>,
    ) -> Self {
        // In virtual time, ends gather without a delay, as time does not pass while tasks run.
        let linger = if client.virtual_time() { Duration::ZERO } else { LINGER };
        let leases = Arc::new(Leases::new(topic.config.trusted_lease(), topic.config.timeout));
        Self {
            names,
            store: client.store.clone(),
            topic,
            limiter: limiter.clone(),
            outage: outage.clone(),
            due_wakeup: Wakeup::default(),
            quarantine_wakeup: Wakeup::default(),
            clock: ServerClock::default(),
            check_wakeup: Wakeup::default(),
            leases,
            outbox: SettlementQueue::new(linger),
            health: PartitionHealth::default(),
            notifications: Mutex::default(),
        }
    }

    /// Returns the wake-up of the claimer of an index.
    pub(crate) fn wakeup_of(&self, index: Index) -> &Wakeup {
        match index {
            Index::Due => &self.due_wakeup,
            Index::Quarantine => &self.quarantine_wakeup,
        }
    }

    /// Queues the end of a claimed timer whose attempt has not started.
    pub(crate) fn settle_unrun(&self, lease: Lease, end: AttemptEnd) {
        self.outbox.push(Settlement { lease, end: Some(end), restore: None });
    }

    /// Records a claim, which covers all timers until its lookahead. Their notifications need no further claim.
    pub(crate) fn note_claim(&self, reading: ClockReading) {
        let covered_until = reading.arrived + self.topic.config.lookahead + MAX_NOTIFICATION_DELAY;
        lock(&self.notifications).covered_until = Some(covered_until);
    }

    /// Requests a claim for an expiry notification, unless the last claim has covered it. Requests at most one claim in
    /// `NOTIFIED_CLAIM_INTERVAL`, because many listeners receive the same notifications.
    pub(crate) fn note_expiry(&self) {
        let now = Instant::now();
        let mut throttle = lock(&self.notifications);
        if throttle.covered_until.is_some_and(|until| now <= until) {
            return;
        }
        if throttle.last_claim.is_some_and(|last| last > now) {
            return; // a claim is planned already
        }
        let at = throttle.last_claim.map_or(now, |last| (last + NOTIFIED_CLAIM_INTERVAL).max(now));
        throttle.last_claim = Some(at);
        drop(throttle);
        self.due_wakeup.request(at, LapseSource::Notification);
    }
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.names)
    }
}
