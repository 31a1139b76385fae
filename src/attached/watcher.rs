//! Requests checks of tracked keys at their deadlines.

use std::time::Duration;

use crate::attached::request::{DeadlineCheck, PartitionContext, ReaderRequest};
use crate::id::SlotId;
use crate::lapse::LapseSource;
use crate::log::{LogThrottle, debug, warn};
use crate::policy::CopySpec;
use crate::runtime::{DeadlineTimer, Partition, WakeResult};
use crate::time::{ClockReading, ms_ceil};
use crate::wire::{TakeChecks, TrackedKey};

/// Maximum number of due checks that one call takes.
const MAX_CHECKS_PER_CALL: usize = 500;
/// A check that was taken becomes due again after this time, for any listener, unless its result is written.
const CHECK_HOLD: Duration = Duration::from_secs(3);
/// The longest time between two calls that take due checks. It bounds the delay if a notification was lost.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Requests the checks of one partition.
pub(crate) struct Watcher {
    context: PartitionContext,
    slot: SlotId,
    timer: DeadlineTimer,
    throttle: LogThrottle,
}

impl Watcher {
    pub(crate) fn new(context: PartitionContext) -> Self {
        let timer = DeadlineTimer::new(Duration::ZERO);
        Self { context, slot: SlotId::random(), timer, throttle: LogThrottle::default() }
    }

    /// Requests checks until it is dropped.
    pub(crate) async fn run(mut self) {
        let PartitionContext { partition, mut known, .. } = self.context.clone();
        loop {
            let source = tokio::select! {
                source = self.timer.due(&partition.check_wakeup, &partition.clock) => source,
                () = tokio::time::sleep(SWEEP_INTERVAL) => LapseSource::Sweep,
                Ok(()) = known.changed() => LapseSource::Sweep,
            };
            let delay = known.borrow_and_update().check_delay();
            match delay {
                None => _ = known.changed().await,
                Some(delay) => self.take_due_checks(source, delay).await,
            }
        }
    }

    /// Takes the checks that have been due for at least `delay`, and requests them.
    async fn take_due_checks(&mut self, source: LapseSource, delay: Duration) {
        let Partition { store, names, topic, .. } = &*self.context.partition;
        let (hold_ms, overdue_ms) = (ms_ceil(CHECK_HOLD), ms_ceil(delay));
        self.timer.begin();
        let take = TakeChecks { slot: self.slot, limit: MAX_CHECKS_PER_CALL, hold_ms, overdue_ms };
        let due = match store.take_checks(names, take).await {
            Ok(due) => due,
            Err(reason) => {
                if self.throttle.should_log(&reason) && !reason.is_transient() {
                    warn!(topic = %topic.config.name, error = %reason, "attached keys cannot be checked at their deadlines");
                }
                debug!(error = %reason, "cannot take due checks");
                return self.timer.plan_retry(source);
            }
        };
        self.throttle = LogThrottle::default();
        let seen = WakeResult {
            reading: ClockReading::now(due.stamp),
            stamp: due.stamp,
            head: due.next.map(|ms| ms + overdue_ms),
            empty: due.watches.is_empty(),
            rival: due.rival,
            standby: false,
        };
        self.timer.plan_next(seen, source);
        // Before its deadline a key's value is read. After the deadline only its absence matters, so those keys come
        // first.
        let (early, late): (Vec<_>, Vec<_>) =
            due.watches.into_iter().partition(|tracked| tracked.deadline > due.stamp.ms());
        self.request_checks(late, &CopySpec::default()).await;
        self.request_checks(early, &topic.policy().capture()).await;
    }

    /// Requests checks from the readers of the keys' servers. Waits for space in the read budget, so that no more checks are
    /// taken than can be made.
    async fn request_checks(&self, keys: Vec<TrackedKey>, capture: &CopySpec) {
        let PartitionContext { index, budget, readers, .. } = &self.context;
        for (reader, keys) in readers.divide_by_reader(keys, |tracked| &tracked.key) {
            for keys in keys.chunks(capture.keys_in_touch()) {
                let bytes = keys.iter().map(|tracked| tracked.key.len() + tracked.head.len()).sum();
                let room = budget.reserve(keys.len(), bytes, capture).await;
                // If a key's deadline has moved later, its value is read shortly before that deadline and not now.
                let horizon = keys.iter().map(|tracked| tracked.deadline).max().unwrap_or_default();
                let (keys, capture) = (keys.to_vec(), capture.clone());
                let check = DeadlineCheck { partition: *index, keys, capture, horizon, room };
                let _ = reader.send(ReaderRequest::Check(check)).await;
            }
        }
    }
}
