//! Wakes for the deadlines of watched keys, and has the reader look at them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tracing::{debug, warn};

use crate::attached::reader::Request;
use crate::error::Result;
use crate::id::SlotId;
use crate::lapse::LapseSource;
use crate::log_throttle::LogThrottle;
use crate::runtime::{DeadlineTimer, Partition, Seen, StreamState};
use crate::time::{Reading, ms_ceil};
use crate::wire::{DueChecks, TakeChecks};

/// Keys in one check.
const BATCH: usize = 500;
/// A check that leads to nothing is made again after this long, by whoever comes first.
const HOLD: Duration = Duration::from_secs(3);
/// Should nobody say that there is something to look at, it is found within this time.
const SWEEP: Duration = Duration::from_secs(5);

/// The watcher of one partition.
pub(crate) struct Watcher {
    index: usize,
    partition: Arc<Partition>,
    stream_state: Arc<StreamState>,
    requests: mpsc::Sender<Request>,
    slot: SlotId,
    timer: DeadlineTimer,
    throttle: LogThrottle,
}

impl Watcher {
    pub(crate) fn new(
        index: usize,
        partition: Arc<Partition>,
        stream_state: Arc<StreamState>,
        requests: mpsc::Sender<Request>,
    ) -> Self {
        Self {
            index,
            partition,
            stream_state,
            requests,
            slot: SlotId::random(),
            timer: DeadlineTimer::new(Duration::ZERO),
            throttle: LogThrottle::default(),
        }
    }

    /// Until it is dropped.
    pub(crate) async fn run(mut self) {
        loop {
            let source = tokio::select! {
                source = self.timer.due(&self.partition.checks, &self.partition.clock) => source,
                () = tokio::time::sleep(SWEEP) => LapseSource::Sweep,
                () = self.stream_state.changed() => LapseSource::Sweep,
            };
            let changed = self.stream_state.changed();
            match self.stream_state.patience() {
                None => changed.await,
                Some(patience) => self.tick(source, patience).await,
            }
        }
    }

    /// Looks once, for what has been due for so long.
    async fn tick(&mut self, source: LapseSource, patience: Duration) {
        self.timer.begin();
        let due = match self.take(patience).await {
            Ok(due) => due,
            Err(reason) => {
                if self.throttle.should_log(&reason) && !reason.is_transient() {
                    let topic = &self.partition.topic.config.name;
                    warn!(%topic, error = %reason, "attached keys cannot be looked at");
                }
                debug!(error = %reason, "due checks could not be fetched");
                return self.timer.failed(source);
            }
        };
        self.throttle = LogThrottle::default();
        let seen = Seen {
            reading: Reading::now(due.stamp),
            head: due.next.map(|ms| ms + ms_ceil(patience)),
            empty: due.watches.is_empty(),
            rival: due.rival,
        };
        self.timer.learn(seen, source);
        if !due.watches.is_empty() {
            let request = Request::Look { partition: self.index, watches: due.watches, now: due.stamp };
            let _ = self.requests.send(request).await;
        }
    }

    async fn take(&self, patience: Duration) -> Result<DueChecks> {
        let (hold_ms, overdue_ms) = (ms_ceil(HOLD), ms_ceil(patience));
        let take = TakeChecks { slot: self.slot, limit: BATCH, hold_ms, overdue_ms };
        self.partition.store.checks(&self.partition.names, take).await
    }
}
