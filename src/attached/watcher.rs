//! Wakes for the deadlines of watched keys, and has the reader look at them.

use std::time::Duration;

use crate::attached::request::{Context, Look, Request};
use crate::id::SlotId;
use crate::lapse::LapseSource;
use crate::log::{LogThrottle, debug, warn};
use crate::policy::Capture;
use crate::runtime::{DeadlineTimer, Partition, Seen};
use crate::time::{Reading, ms_ceil};
use crate::wire::{TakeChecks, Watch};

/// Keys in one check.
const BATCH: usize = 500;
/// A check that leads to nothing is made again after this long, by whoever comes first.
const HOLD: Duration = Duration::from_secs(3);
/// Should nobody say that there is something to look at, it is found within this time.
const SWEEP: Duration = Duration::from_secs(5);

/// The watcher of one partition.
pub(crate) struct Watcher {
    context: Context,
    slot: SlotId,
    timer: DeadlineTimer,
    throttle: LogThrottle,
}

impl Watcher {
    pub(crate) fn new(context: Context) -> Self {
        let timer = DeadlineTimer::new(Duration::ZERO);
        Self { context, slot: SlotId::random(), timer, throttle: LogThrottle::default() }
    }

    /// Until it is dropped.
    pub(crate) async fn run(mut self) {
        let Context { partition, mut known, .. } = self.context.clone();
        loop {
            let source = tokio::select! {
                source = self.timer.due(&partition.checks, &partition.clock) => source,
                () = tokio::time::sleep(SWEEP) => LapseSource::Sweep,
                Ok(()) = known.changed() => LapseSource::Sweep,
            };
            let patience = known.borrow_and_update().patience();
            match patience {
                None => _ = known.changed().await,
                Some(patience) => self.tick(source, patience).await,
            }
        }
    }

    /// Looks once, for what has been due for so long.
    async fn tick(&mut self, source: LapseSource, patience: Duration) {
        let Partition { store, names, topic, .. } = &*self.context.partition;
        let (hold_ms, overdue_ms) = (ms_ceil(HOLD), ms_ceil(patience));
        self.timer.begin();
        let take = TakeChecks { slot: self.slot, limit: BATCH, hold_ms, overdue_ms };
        let due = match store.checks(names, take).await {
            Ok(due) => due,
            Err(reason) => {
                if self.throttle.should_log(&reason) && !reason.is_transient() {
                    warn!(topic = %topic.config.name, error = %reason, "attached keys cannot be looked at");
                }
                debug!(error = %reason, "due checks could not be fetched");
                return self.timer.failed(source);
            }
        };
        self.throttle = LogThrottle::default();
        let seen = Seen {
            reading: Reading::now(due.stamp),
            stamp: due.stamp,
            head: due.next.map(|ms| ms + overdue_ms),
            empty: due.watches.is_empty(),
            rival: due.rival,
            standby: false,
        };
        self.timer.learn(seen, source);
        // Before the deadline the value is wanted, afterwards only whether the key is gone, and that at once.
        let (early, late): (Vec<_>, Vec<_>) =
            due.watches.into_iter().partition(|watch| watch.deadline > due.stamp.ms());
        self.look(late, &Capture::default()).await;
        self.look(early, &topic.policy().capture()).await;
    }

    /// Has keys looked at. It waits until there is room for them: so no more are taken than can be looked at.
    async fn look(&self, watches: Vec<Watch>, capture: &Capture) {
        let Context { index, room, readers, .. } = &self.context;
        for (reader, watches) in readers.share_out(watches, |watch| &watch.key) {
            for watches in watches.chunks(capture.keys_in_touch()) {
                let bytes = watches.iter().map(|watch| watch.key.len() + watch.head.len()).sum();
                let room = room.take(watches.len(), bytes, capture).await;
                // A key that lives longer than was known is read again before that deadline.
                let horizon = watches.iter().map(|watch| watch.deadline).max().unwrap_or_default();
                let (watches, capture) = (watches.to_vec(), capture.clone());
                let look = Look { partition: *index, watches, capture, horizon, room };
                let _ = reader.send(Request::Look(look)).await;
            }
        }
    }
}
