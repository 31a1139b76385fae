//! The task that sends what has gathered, one batch after the other.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::time::Instant;

use super::batch::Batch;
use super::queue::HALF;
use super::{BATCH, Shared};
use crate::error::{Error, ErrorKind};
use crate::lock::lock;

/// Batches on their way at a time. More than two only where there is more than one call takes: what is not sent yet
/// can still be joined.
const AT_A_TIME: usize = 4;

/// Until nothing is left.
pub(super) async fn drive(mut driving: Driving) {
    let lane = driving.lane.clone();
    let (mut going, mut on_their_way) = (FuturesUnordered::new(), HashSet::<Bytes>::new());
    // Callers whose answers are being handed out: their next calls are to go together.
    let (mut turns, mut in_turn) = (FuturesUnordered::new(), 0);
    loop {
        while let Some(batch) = next(&lane, going.len(), in_turn, &mut on_their_way) {
            going.push(batch.carry(&lane));
        }
        if going.is_empty() && turns.is_empty() && driving.rest() {
            return;
        }
        let look = lock(&lane.queue).next_look(Instant::now());
        tokio::select! {
            Some((keys, answered)) = going.next() => {
                keys.iter().for_each(|key| {
                    on_their_way.remove(key);
                });
                in_turn += answered.len();
                turns.push(answered.hand_over());
            }
            Some(answered) = turns.next() => in_turn -= answered,
            () = lane.enough.notified() => {}
            () = sleep_until(look) => {}
        }
    }
}

async fn sleep_until(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// Returns the next batch, if one is worth sending now: `going` batches have no answer yet, and `in_turn` callers were
/// answered just now and may call again.
fn next(lane: &Shared, going: usize, in_turn: usize, on_their_way: &mut HashSet<Bytes>) -> Option<Batch> {
    let mut queue = lock(&lane.queue);
    let now = Instant::now();
    while let Some(expired) = queue.pop_expired(now) {
        let message =
            "it was not sent: calls of this program before it, for the same partition, have no answer";
        expired.answer(Err(Error::new(ErrorKind::Timeout, message)));
    }
    // As many as are on their way, for a second call: then both have their turns at being made and being executed.
    queue.worth = if going > 1 { BATCH } else { on_their_way.len().max(in_turn).max(HALF) };
    if going + in_turn > 0 && (going >= AT_A_TIME || !queue.is_worth_a_call()) {
        return None;
    }
    let share = queue.share(going == 0);
    let batch = queue.take(share, now, on_their_way);
    (!batch.is_empty()).then_some(batch)
}

/// While a driver is at work. Should it end before its time, with a runtime of virtual time, all that waits has no answer.
pub(super) struct Driving {
    lane: Arc<Shared>,
    rested: bool,
}

impl Driving {
    pub(super) fn of(lane: Arc<Shared>) -> Self {
        Self { lane, rested: false }
    }

    /// Ends the driver's work, if there is none.
    fn rest(&mut self) -> bool {
        let mut queue = lock(&self.lane.queue);
        self.rested = queue.is_empty();
        queue.driven = !self.rested;
        self.rested
    }
}

impl Drop for Driving {
    fn drop(&mut self) {
        if !self.rested {
            let left = lock(&self.lane.queue).abandon();
            drop(left);
        }
    }
}
