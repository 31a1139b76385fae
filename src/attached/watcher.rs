//! Wakes at the deadlines of tracked keys, and requests their checks.

use std::time::Duration;

use crate::attached::request::{DeadlineCheck, PartitionContext, ReaderRequest};
use crate::id::SlotId;
use crate::lapse::LapseSource;
use crate::log::{LogThrottle, debug, warn};
use crate::policy::CopySpec;
use crate::runtime::{DeadlineTimer, LookResult, Partition};
use crate::time::{ClockReading, ms_ceil};
use crate::wire::{TakeChecks, TrackedKey};

/// Keys that one call takes.
const BATCH: usize = 500;
/// A check without a result becomes due again after this time, for any listener.
const CHECK_HOLD: Duration = Duration::from_secs(3);
/// Due checks are found within this time if no notification arrives.
const SWEEP: Duration = Duration::from_secs(5);

/// The watcher of one partition.
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
                source = self.timer.due(&partition.checks, &partition.clock) => source,
                () = tokio::time::sleep(SWEEP) => LapseSource::Sweep,
                Ok(()) = known.changed() => LapseSource::Sweep,
            };
            let delay = known.borrow_and_update().check_delay();
            match delay {
                None => _ = known.changed().await,
                Some(delay) => self.tick(source, delay).await,
            }
        }
    }

    /// Takes the checks that have been due for at least `delay`, and requests them.
    async fn tick(&mut self, source: LapseSource, delay: Duration) {
        let Partition { store, names, topic, .. } = &*self.context.partition;
        let (hold_ms, overdue_ms) = (ms_ceil(CHECK_HOLD), ms_ceil(delay));
        self.timer.begin();
        let take = TakeChecks { slot: self.slot, limit: BATCH, hold_ms, overdue_ms };
        let due = match store.take_checks(names, take).await {
            Ok(due) => due,
            Err(reason) => {
                if self.throttle.should_log(&reason) && !reason.is_transient() {
                    warn!(topic = %topic.config.name, error = %reason, "attached keys cannot be checked at their deadlines");
                }
                debug!(error = %reason, "cannot take due checks");
                return self.timer.failed(source);
            }
        };
        self.throttle = LogThrottle::default();
        let seen = LookResult {
            reading: ClockReading::now(due.stamp),
            stamp: due.stamp,
            head: due.next.map(|ms| ms + overdue_ms),
            empty: due.watches.is_empty(),
            rival: due.rival,
            standby: false,
        };
        self.timer.learn(seen, source);
        // Before its deadline a key's value is read. After the deadline only its absence matters, so those keys come
        // first.
        let (early, late): (Vec<_>, Vec<_>) =
            due.watches.into_iter().partition(|watch| watch.deadline > due.stamp.ms());
        self.look(late, &CopySpec::default()).await;
        self.look(early, &topic.policy().capture()).await;
    }

    /// Requests checks. Waits for space in the read budget, so that no more checks are taken than can be made.
    async fn look(&self, watches: Vec<TrackedKey>, capture: &CopySpec) {
        let PartitionContext { index, room, readers, .. } = &self.context;
        for (reader, watches) in readers.share_out(watches, |watch| &watch.key) {
            for watches in watches.chunks(capture.keys_in_touch()) {
                let bytes = watches.iter().map(|watch| watch.key.len() + watch.head.len()).sum();
                let room = room.take(watches.len(), bytes, capture).await;
                // If a key's deadline has moved later, its value is read shortly before that deadline and not now.
                let horizon = watches.iter().map(|watch| watch.deadline).max().unwrap_or_default();
                let (watches, capture) = (watches.to_vec(), capture.clone());
                let look = DeadlineCheck { partition: *index, watches, capture, horizon, room };
                let _ = reader.send(ReaderRequest::Look(look)).await;
            }
        }
    }
}
