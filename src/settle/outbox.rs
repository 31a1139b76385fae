//! Ends of attempts on their way to Redis, gathered into batches.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::verdict::Decision;
use crate::store::{End, Held, MAX_BATCH};

/// How long the first end waits for company. At a high rate batches fill
/// faster; at a low one nobody waits for an ack but Redis.
pub(crate) const LINGER: Duration = Duration::from_millis(15);
/// This many do not wait any longer.
const ENOUGH: usize = 64;
/// Beyond this many unsettled ends, nothing more is claimed.
const FULL: usize = 4 * MAX_BATCH;

/// One end of an attempt.
#[derive(Clone, Debug)]
pub(crate) struct Settlement {
    pub(crate) held: Held,
    pub(crate) decision: Decision,
}

/// The ends of one partition.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// How long the first end waits for company.
    linger: Duration,
    state: Mutex<State>,
    filled: Notify,
    drained: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Settlement>,
    /// On their way: an answer to a renewal may cross their settlement.
    sent: HashSet<Held>,
}

impl Outbox {
    pub(crate) fn new(linger: Duration) -> Self {
        Self { linger, state: Mutex::default(), filled: Notify::new(), drained: Notify::new() }
    }

    pub(crate) fn put(&self, settlement: Settlement) {
        let mut state = self.lock();
        state.waiting.push(settlement);
        let count = state.waiting.len();
        drop(state);
        if count == 1 || count == ENOUGH {
            self.filled.notify_one();
        }
    }

    /// Hands timers back, at once.
    pub(crate) fn release(&self, held: impl IntoIterator<Item = Held>) {
        let mut state = self.lock();
        let release = |held| Settlement { held, decision: Decision::End(End::Release) };
        state.waiting.extend(held.into_iter().map(release));
        self.filled.notify_one();
    }

    /// The next batch, once there is something.
    pub(crate) async fn next_batch(&self) -> Vec<Settlement> {
        while self.lock().waiting.is_empty() {
            self.filled.notified().await;
        }
        if self.linger.is_zero() {
            return self.take();
        }
        let linger = tokio::time::sleep(self.linger);
        tokio::pin!(linger);
        while self.lock().waiting.len() < ENOUGH {
            tokio::select! {
                () = &mut linger => break,
                () = self.filled.notified() => {}
            }
        }
        self.take()
    }

    fn take(&self) -> Vec<Settlement> {
        let mut state = self.lock();
        let batch: Vec<_> = std::mem::take(&mut state.waiting);
        state.sent.extend(batch.iter().map(|settlement| settlement.held.clone()));
        batch
    }

    /// Forgets a batch that was settled or given up.
    pub(crate) fn settled(&self, batch: &[Settlement]) {
        let mut state = self.lock();
        for settlement in batch {
            state.sent.remove(&settlement.held);
        }
        drop(state);
        self.drained.notify_waiters();
    }

    pub(crate) fn is_not_settling(&self, held: &Held) -> bool {
        !self.lock().sent.contains(held)
    }

    /// Returns once there is room for more ends.
    pub(crate) async fn room(&self) {
        self.fewer_than(FULL).await;
    }

    /// Returns once everything is settled.
    pub(crate) async fn empty(&self) {
        self.fewer_than(1).await;
    }

    async fn fewer_than(&self, count: usize) {
        loop {
            let drained = self.drained.notified();
            if self.unsettled() < count {
                return;
            }
            drained.await;
        }
    }

    fn unsettled(&self) -> usize {
        let state = self.lock();
        state.waiting.len() + state.sent.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
