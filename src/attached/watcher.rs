//! Wakes for the deadlines of watched keys, and has the reader look at them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::attached::reader::Request;
use crate::attached::stream_state::StreamState;
use crate::connection::retry::RetryDelays;
use crate::runtime::leadership::Leadership;
use crate::log_throttle::LogThrottle;
use crate::error::Result;
use crate::id::SlotId;
use crate::runtime::partition::Partition;
use crate::wire::attached::{ForeignKeys, DueChecks, TakeChecks};
use crate::time::{Reading, ms_ceil};

/// Keys in one look.
const BATCH: usize = 500;
/// A look that leads to nothing is made again after this long, by whoever comes first.
const HOLD: Duration = Duration::from_secs(3);
/// Should nobody say that there is something to look at, it is found within this time.
const SWEEP: Duration = Duration::from_secs(5);
/// The least time between looks that come away empty.
const PAUSE: Duration = Duration::from_millis(5);

/// The looker of one partition.
pub(super) struct Watcher {
    pub(super) index: usize,
    pub(super) partition: Arc<Partition>,
    pub(super) foreign: Arc<dyn ForeignKeys>,
    pub(super) stream_state: Arc<StreamState>,
    pub(super) asks: mpsc::Sender<Request>,
    pub(super) slot: SlotId,
}

/// When the next look is due.
#[derive(Clone, Copy)]
struct Next {
    ms: u64,
    at: Instant,
}

impl Watcher {
    /// Until it is dropped.
    pub(super) async fn run(self) {
        let mut leadership = Leadership::default();
        let mut next = None;
        let mut reading: Option<Reading> = None;
        let mut waits = RetryDelays::default();
        let mut throttle = LogThrottle::default();
        loop {
            let woke_for = self.wait(&mut next, reading, &leadership).await;
            let changed = self.stream_state.changed();
            let Some(patience) = self.stream_state.patience() else {
                changed.await;
                continue;
            };
            match self.tick(patience).await {
                Ok(looks) => {
                    waits = RetryDelays::default();
                    throttle = LogThrottle::default();
                    let now = Reading::now(looks.stamp);
                    reading = Some(now);
                    let empty = looks.watches.is_empty();
                    learn(&mut leadership, woke_for, &looks);
                    next = looks.next.map(|ms| {
                        let rested = if empty { Instant::now() + PAUSE } else { Instant::now() };
                        Next { ms, at: now.when(ms).max(rested) + patience }
                    });
                    if !empty {
                        let ask = Request::Look { partition: self.index, watches: looks.watches, now: looks.stamp };
                        let _ = self.asks.send(ask).await;
                    }
                }
                Err(reason) => {
                    if throttle.should_log(&reason) && !reason.is_transient() {
                        warn!(topic = %self.partition.topic.config.name, error = %reason, "attached keys cannot be looked at");
                    }
                    debug!(error = %reason, "no look");
                    next = Some(Next { ms: 0, at: Instant::now() + waits.next() });
                }
            }
        }
    }

    /// RetryDelays for the next deadline that is known of; the earliest ms that was waited for.
    async fn wait(&self, next: &mut Option<Next>, reading: Option<Reading>, leadership: &Leadership) -> Option<u64> {
        loop {
            if let Some(ms) = self.partition.checks.take().head.filter(|ms| next.is_none_or(|next| *ms < next.ms)) {
                let at = reading.map_or_else(Instant::now, |reading| reading.when(ms));
                *next = Some(Next { ms, at });
            }
            let sweep = Instant::now() + SWEEP;
            let at = next.map_or(sweep, |next| leadership.wake(next.at, Duration::ZERO, true).min(sweep));
            tokio::select! {
                () = tokio::time::sleep_until(at) => return next.take().filter(|_| at < sweep).map(|next| next.ms),
                () = self.partition.checks.woken() => {}
                () = self.stream_state.changed() => return None,
            }
        }
    }

    async fn tick(&self, patience: Duration) -> Result<DueChecks> {
        let (hold_ms, overdue_ms) = (ms_ceil(HOLD), ms_ceil(patience));
        self.foreign.checks(&self.partition.at, TakeChecks { slot: self.slot, limit: BATCH, hold_ms, overdue_ms }).await
    }
}

/// Whoever finds that another has taken what it woke for is later the next time.
fn learn(leadership: &mut Leadership, woke_for: Option<u64>, checks: &DueChecks) {
    if !looks.watches.is_empty() {
        leadership.won();
    } else if looks.rival && woke_for.is_some_and(|ms| looks.next.is_none_or(|next| next > ms)) {
        leadership.lost();
    }
}
