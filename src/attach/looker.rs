//! Wakes for the deadlines of watched keys, and has the observer look at them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::observer::Ask;
use super::standing::Standing;
use crate::calls::Waits;
use crate::claim::Pace;
use crate::complaint::Complaint;
use crate::error::Result;
use crate::id::Lane;
use crate::listener::Desk;
use crate::store::foreign::{ForeignKeys, Looks, Take};
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
pub(super) struct Looker {
    pub(super) index: usize,
    pub(super) desk: Arc<Desk>,
    pub(super) foreign: Arc<dyn ForeignKeys>,
    pub(super) standing: Arc<Standing>,
    pub(super) asks: mpsc::Sender<Ask>,
    pub(super) lane: Lane,
}

/// When the next look is due.
#[derive(Clone, Copy)]
struct Next {
    ms: u64,
    at: Instant,
}

impl Looker {
    /// Until it is dropped.
    pub(super) async fn run(self) {
        let mut pace = Pace::default();
        let mut next = None;
        let mut reading: Option<Reading> = None;
        let mut waits = Waits::default();
        let mut complaint = Complaint::default();
        loop {
            let woke_for = self.wait(&mut next, reading, &pace).await;
            let changed = self.standing.changed();
            let Some(patience) = self.standing.patience() else {
                changed.await;
                continue;
            };
            match self.tick(patience).await {
                Ok(looks) => {
                    waits = Waits::default();
                    complaint = Complaint::default();
                    let now = Reading::now(looks.stamp);
                    reading = Some(now);
                    let empty = looks.watches.is_empty();
                    learn(&mut pace, woke_for, &looks);
                    next = looks.next.map(|ms| {
                        let rested = if empty { Instant::now() + PAUSE } else { Instant::now() };
                        Next { ms, at: now.when(ms).max(rested) + patience }
                    });
                    if !empty {
                        let ask = Ask::Look { desk: self.index, watches: looks.watches, now: looks.stamp };
                        let _ = self.asks.send(ask).await;
                    }
                }
                Err(reason) => {
                    if complaint.is_news(&reason) && !reason.is_transient() {
                        warn!(topic = %self.desk.topic.shape.name, error = %reason, "attached keys cannot be looked at");
                    }
                    debug!(error = %reason, "no look");
                    next = Some(Next { ms: 0, at: Instant::now() + waits.next() });
                }
            }
        }
    }

    /// Waits for the next deadline that is known of; the earliest ms that was waited for.
    async fn wait(&self, next: &mut Option<Next>, reading: Option<Reading>, pace: &Pace) -> Option<u64> {
        loop {
            if let Some(ms) = self.desk.looks.take().head.filter(|ms| next.is_none_or(|next| *ms < next.ms)) {
                let at = reading.map_or_else(Instant::now, |reading| reading.when(ms));
                *next = Some(Next { ms, at });
            }
            let sweep = Instant::now() + SWEEP;
            let at = next.map_or(sweep, |next| pace.wake(next.at, Duration::ZERO, true).min(sweep));
            tokio::select! {
                () = tokio::time::sleep_until(at) => return next.take().filter(|_| at < sweep).map(|next| next.ms),
                () = self.desk.looks.rung() => {}
                () = self.standing.changed() => return None,
            }
        }
    }

    async fn tick(&self, patience: Duration) -> Result<Looks> {
        let (hold_ms, overdue_ms) = (ms_ceil(HOLD), ms_ceil(patience));
        self.foreign.looks(&self.desk.at, Take { lane: self.lane, limit: BATCH, hold_ms, overdue_ms }).await
    }
}

/// Whoever finds that another has taken what it woke for is later the next time.
fn learn(pace: &mut Pace, woke_for: Option<u64>, looks: &Looks) {
    if !looks.watches.is_empty() {
        pace.won();
    } else if looks.rival && woke_for.is_some_and(|ms| looks.next.is_none_or(|next| next > ms)) {
        pace.lost();
    }
}
