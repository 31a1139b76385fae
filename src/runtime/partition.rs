//! One partition of a topic, as a listener serves it.

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

/// Looks on behalf of notifications, at most one in this time.
const NOTIFIED_EVERY: Duration = Duration::from_millis(250);
/// A notification may be of a timer that was claimed so long ago, and its lookahead: trigger keys are read
/// two milliseconds after their deadlines, and up to fifty later.
const NOTIFIED_LATE: Duration = Duration::from_millis(62);

/// One partition as a listener serves it.
pub(crate) struct Partition {
    pub(crate) names: PartitionNames,
    pub(crate) store: Store,
    pub(crate) topic: Arc<RunningTopic>,
    pub(crate) limiter: Arc<ConcurrencyLimiter>,
    pub(crate) outage: Arc<LogThrottle>,
    pub(crate) wakeup: Wakeup,
    /// Of the timers in quarantine.
    pub(crate) quarantine: Wakeup,
    pub(crate) clock: ServerClock,
    /// When attached keys are to be looked at.
    pub(crate) checks: Wakeup,
    pub(crate) leases: Arc<Leases>,
    pub(crate) outbox: SettlementQueue,
    pub(crate) condition: PartitionHealth,
    seen: Mutex<NotificationThrottle>,
}

/// How far the last look reached.
#[derive(Default)]
struct NotificationThrottle {
    until: Option<Instant>,
    notified: Option<Instant>,
}

impl Partition {
    /// The permits and the outage are those of all partitions of a listener.
    pub(crate) fn new(
        names: PartitionNames,
        topic: Arc<RunningTopic>,
        client: &Client,
        permits: &Arc<ConcurrencyLimiter>,
        outage: &Arc<LogThrottle>,
    ) -> Self {
        // Virtual time stands still while there is work to do, so company comes anyway.
        let linger = if client.virtual_time() { Duration::ZERO } else { LINGER };
        let leases = Arc::new(Leases::new(topic.config.trusted_lease(), topic.config.timeout));
        Self {
            names,
            store: client.store.clone(),
            topic,
            limiter: permits.clone(),
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

    /// The wake-up of whoever claims from an index.
    pub(crate) fn wakeup_of(&self, index: Index) -> &Wakeup {
        match index {
            Index::Due => &self.wakeup,
            Index::Quarantine => &self.quarantine,
        }
    }

    /// Ends a timer without an attempt.
    pub(crate) fn end(&self, lease: Lease, end: AttemptEnd) {
        self.outbox.put(Settlement { lease, end: Some(end), restore: None });
    }

    /// Notes how far a claim has looked.
    pub(crate) fn note_look(&self, reading: ClockReading) {
        let mut seen = lock(&self.seen);
        seen.until = Some(reading.arrived + self.topic.config.lookahead + NOTIFIED_LATE);
    }

    /// An expired key was announced: worth a look, unless the last one has
    /// covered it; and never a look for each key, or many listeners would do
    /// each other's work over and over.
    pub(crate) fn note_expired(&self) {
        let now = Instant::now();
        let mut seen = lock(&self.seen);
        if seen.until.is_some_and(|until| now <= until) {
            return;
        }
        if seen.notified.is_some_and(|last| last > now) {
            return; // one is planned already
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
