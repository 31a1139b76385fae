//! Settles ended attempts in Redis, in batches.

use std::sync::Arc;

use tokio::time::Instant;

use crate::connection::retry_settling;
use crate::error::{Error, Result};
use crate::escape::Escaped;
use crate::log::{LogThrottle, debug, error, warn};
use crate::roles::attempt::record_dead_letter;
use crate::roles::write_back;
use crate::runtime::{Partition, Settlement};
use crate::time::ClockReading;
use crate::wire::{
    AttemptEnd, Ending, LeaseRef, MAX_BATCH, MarkerKey, MarkerWrite, MarkerWriteReport, Settle, SettleReply,
    portions,
};

/// The settler of one partition.
pub(crate) struct Settler {
    pub(crate) partition: Arc<Partition>,
}

impl Settler {
    /// Settles batches until it is dropped.
    pub(crate) async fn run(self) {
        loop {
            let batch = self.partition.outbox.next_batch().await;
            self.settle_batch(batch).await;
        }
    }

    /// Settles a batch in portions, and then writes marker keys and keys for retries.
    async fn settle_batch(&self, batch: Vec<Settlement>) {
        for chunk in batch.chunks(MAX_BATCH) {
            let (mut acks, mut ends) = (Vec::new(), Vec::new());
            for Settlement { lease, end, .. } in chunk {
                let held = lease.held.clone();
                match end {
                    None => acks.push(held),
                    Some(end) => ends.push(Settle { held, end: end.clone() }),
                }
            }
            let mut markers = Vec::new();
            for acks in portions(&acks) {
                markers.extend(self.ack(acks).await);
            }
            for ends in portions(&ends) {
                markers.extend(self.settle_ends(ends).await);
            }
            // The leases end, even if the settlement failed.
            self.partition.leases.remove_settled(chunk.iter().map(|settlement| &settlement.lease.held));
            self.partition.outbox.note_settled(chunk.len());
            let copy = |one: &Settlement| Some((one.lease.held.key.clone(), one.restore.clone()?));
            let copies = chunk.iter().filter_map(copy).collect();
            write_back::write_back(&self.partition, &markers, &copies).await;
            self.set_remote_markers(markers);
        }
    }

    /// Makes a call that settles `count` ends, and repeats it for up to a lease time. Returns the answer, and whether the
    /// call was repeated. Returns `None` after a failure: the timers stay claimed, and run again when their leases end.
    async fn call_with_retries<T, F>(&self, count: usize, mut call: impl FnMut() -> F) -> Option<(T, bool)>
    where
        F: Future<Output = Result<T>>,
    {
        let (topic, stats) = (&self.partition.topic, &self.partition.topic.stats);
        let (mut repeated, throttle) = (false, LogThrottle::default());
        let report_error = |error: &Error| {
            if !throttle.is_new(error) {
                return;
            }
            stats.settle_errors.add(1);
            topic.last_error.note(error);
            if error.needs_operator() || self.partition.outage.should_log(error) {
                let partition = self.partition.names.index;
                warn!(?topic, partition, %error, "cannot settle; trying again for the time of a lease");
            }
        };
        let call = |repeat| {
            repeated |= repeat;
            call()
        };
        match retry_settling(topic.config.lease, call, report_error).await {
            Ok(answer) => Some((answer, repeated)),
            Err(error) => {
                stats.unsettled.add(count);
                error!(
                    ?topic, count, %error,
                    "attempts ended, but could not be settled: they run again when their leases end"
                );
                None
            }
        }
    }

    /// Acknowledges timers that are done. Returns the marker keys of the armings that were queued behind them, and are
    /// timers now.
    async fn ack(&self, acks: &[LeaseRef]) -> Vec<MarkerWrite> {
        let Partition { topic, store, names, clock, .. } = &*self.partition;
        let mut sent = Instant::now();
        let call = || {
            sent = Instant::now();
            store.ack(names, topic.config.marker_keys, acks)
        };
        let Some((reply, repeated)) = self.call_with_retries(acks.len(), call).await else {
            return Vec::new();
        };
        // At a high rate, this call is faster than any claim, so its timestamp is more exact.
        clock.update(sent, ClockReading::now(reply.stamp));
        // A repeated ack reports timers as gone that its first try has settled.
        if !repeated && !reply.gone.is_empty() {
            topic.stats.gone.add(reply.gone.len());
            warn!(
                ?topic,
                count = reply.gone.len(),
                "attempts ended after their lease: the timers were cancelled or run again elsewhere"
            );
        }
        record_markers(&self.partition, &reply.markers);
        let followed = reply.followed.iter();
        followed.filter_map(|next| Some(marker_write(acks.get(next.place)?, 1, next.deadline))).collect()
    }

    /// Settles all other ends. Returns the marker keys of the timers that wait now.
    async fn settle_ends(&self, ends: &[Settle]) -> Vec<MarkerWrite> {
        let Partition { topic, store, names, .. } = &*self.partition;
        let call = || store.settle(names, topic.config.dead_letters, topic.config.marker_keys, ends);
        let Some((settled, repeated)) = self.call_with_retries(ends.len(), call).await else {
            return Vec::new();
        };
        record_markers(&self.partition, &settled.markers);
        topic.stats.trimmed.add_u64(settled.trimmed);
        let mut markers = Vec::new();
        for (settle, reply) in ends.iter().zip(settled.each) {
            self.record_settled(settle, reply, repeated);
            let (SettleReply::Settled(Some((deadline, _))) | SettleReply::ReplacedByQueued(deadline, _)) =
                reply
            else {
                continue;
            };
            let attempt = match (&settle.end, reply) {
                (AttemptEnd::Release, _) => continue,
                (
                    AttemptEnd::Retry { attempt, .. } | AttemptEnd::Snooze { attempt, .. },
                    SettleReply::Settled(_),
                ) => *attempt,
                // The timer that waits now is another arming of the key.
                (
                    AttemptEnd::Retry { .. }
                    | AttemptEnd::Snooze { .. }
                    | AttemptEnd::Again { .. }
                    | AttemptEnd::Dead { .. },
                    _,
                ) => 1,
            };
            markers.push(marker_write(&settle.held, attempt, deadline));
        }
        markers
    }

    /// Counts and logs a settled end.
    fn record_settled(&self, Settle { held, end }: &Settle, reply: SettleReply, repeated: bool) {
        let topic = &self.partition.topic;
        let ending = match (end, reply) {
            (_, SettleReply::Gone) if repeated => return,
            (_, SettleReply::Gone) => return topic.stats.gone.add(1),
            (AttemptEnd::Retry { .. }, SettleReply::ReplacedByQueued(..)) => Ending::ReplacedByQueued,
            (end, _) => end.ending(),
        };
        topic.stats.settled(ending);
        match end {
            AttemptEnd::Retry { attempt, .. } if ending == Ending::Retry => {
                debug!(?topic, key = %Escaped(&held.key), attempt, "retry");
            }
            AttemptEnd::Dead { reason, history } => record_dead_letter(topic, held, *reason, history),
            _ => {}
        }
    }

    /// Sets marker keys by separate calls, if the scripts cannot set them in the call that writes the index.
    fn set_remote_markers(&self, markers: Vec<MarkerWrite>) {
        let Partition { topic, store, .. } = &*self.partition;
        if markers.is_empty() || !topic.config.marker_keys || !store.markers_need_own_calls() {
            return;
        }
        let partition = self.partition.clone();
        // Servers of marker keys may be unavailable, which must not delay the next settlements.
        tokio::spawn(async move {
            let mut set = MarkerWriteReport::default();
            for became in partition.store.set_markers(&markers).await {
                match became {
                    MarkerKey::Taken => set.taken += 1,
                    MarkerKey::Failed(error) => set.refused = Some(error.to_string()),
                    _ => {}
                }
            }
            record_markers(&partition, &set);
        });
    }
}

/// Counts marker keys that other programs have written, and logs a failure. A missing marker key needs no repair, since the
/// index fires the timer.
fn record_markers(partition: &Partition, set: &MarkerWriteReport) {
    partition.topic.stats.taken_markers.add(usize::try_from(set.taken).unwrap_or(usize::MAX));
    if let Some(error) = &set.refused {
        debug!(topic = ?partition.topic, %error, "cannot set marker keys");
    }
}

fn marker_write(held: &LeaseRef, attempt: u32, deadline: u64) -> MarkerWrite {
    MarkerWrite { key: held.key.clone(), deadline, attempt, moved: false }
}
