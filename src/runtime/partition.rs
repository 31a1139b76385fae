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

/// The minimum time between two claims that notifications cause.
const NOTIFIED_EVERY: Duration = Duration::from_millis(250);
/// How long after the lookahead of a claim a notification may arrive for a timer that it took. Marker keys are
/// checked 2 ms after their deadlines, and up to 50 ms later.
const NOTIFIED_LATE: Duration = Duration::from_millis(62);

/// The state of a partition that a listener serves.
pub(crate) struct Partition {
    pub(crate) names: PartitionNames,
    pub(crate) store: Store,
    pub(crate) topic: Arc<RunningTopic>,
    pub(crate) limiter: Arc<ConcurrencyLimiter>,
    pub(crate) outage: Arc<LogThrottle>,
    pub(crate) wakeup: Wakeup,
    /// The wake-up for timers in quarantine.
    pub(crate) quarantine: Wakeup,
    pub(crate) clock: ServerClock,
    /// The wake-up for checks of attached keys.
    pub(crate) checks: Wakeup,
    pub(crate) leases: Arc<Leases>,
    pub(crate) outbox: SettlementQueue,
    pub(crate) condition: PartitionHealth,
    seen: Mutex<NotificationThrottle>,
}

/// Decides whether a notification causes a claim.
#[derive(Default)]
struct NotificationThrottle {
    until: Option<Instant>,
    notified: Option<Instant>,
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
        // Virtual time stands still while tasks run, so ends gather without a delay.
        let linger = if client.virtual_time() { Duration::ZERO } else { LINGER };
        let leases = Arc::new(Leases::new(topic.config.trusted_lease(), topic.config.timeout));
        Self {
            names,
            store: client.store.clone(),
            topic,
            limiter: limiter.clone(),
            outage: outage.clone(),
            wakeup: Wakeup::default(),
            quarantine: Wakeup::default(),
            clock: ServerClock::default(),
            checks: Wakeup::default(),
            leases,
            outbox: SettlementQueue::new(linger),
            condition: PartitionHealth::default(),
            seen: Mutex::default(),
        }
    }

    /// Returns the wake-up of the claimer of an index.
    pub(crate) fn wakeup_of(&self, index: Index) -> &Wakeup {
        match index {
            Index::Due => &self.wakeup,
            Index::Quarantine => &self.quarantine,
        }
    }

    /// Settles a timer without an attempt.
    pub(crate) fn end(&self, lease: Lease, end: AttemptEnd) {
        self.outbox.put(Settlement { lease, end: Some(end), restore: None });
    }

    /// Records until when notifications need no claim, because this claim covered their timers.
    pub(crate) fn note_look(&self, reading: ClockReading) {
        let mut seen = lock(&self.seen);
        seen.until = Some(reading.arrived + self.topic.config.lookahead + NOTIFIED_LATE);
    }

    /// Requests a claim for an expiry notification, unless the last claim has covered it. At most one claim is
    /// requested in 250 ms, because many listeners receive the same notifications.
    pub(crate) fn note_expired(&self) {
        let now = Instant::now();
        let mut seen = lock(&self.seen);
        if seen.until.is_some_and(|until| now <= until) {
            return;
        }
        if seen.notified.is_some_and(|last| last > now) {
            return; // a claim is planned already
        }
        let at = seen.notified.map_or(now, |last| (last + NOTIFIED_EVERY).max(now));
        seen.notified = Some(at);
        drop(seen);
        self.wakeup.look(at, LapseSource::Notification);
    }
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.names)
    }
}
