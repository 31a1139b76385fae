//! Tells Redis how attempts ended, batch after batch.

use std::sync::Arc;

use tokio::time::Instant;

use crate::connection::retry_settling;
use crate::error::{Error, Result};
use crate::escape::Escaped;
use crate::log::{LogThrottle, debug, error, warn};
use crate::roles::attempt::dead_letter;
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
    /// Until it is dropped.
    pub(crate) async fn run(self) {
        loop {
            let batch = self.partition.outbox.next_batch().await;
            self.settle(batch).await;
        }
    }

    async fn settle(&self, batch: Vec<Settlement>) {
        for chunk in batch.chunks(MAX_BATCH) {
            let (mut acks, mut ends) = (Vec::new(), Vec::new());
            for Settlement { lease, end, .. } in chunk {
                let held = lease.held.clone();
                match end {
                    None => acks.push(held),
                    Some(end) => ends.push(Settle { held, end: end.clone() }),
                }
            }
            let mut follows = Vec::new();
            for acks in portions(&acks) {
                follows.extend(self.ack(acks).await);
            }
            for ends in portions(&ends) {
                follows.extend(self.end(ends).await);
            }
            // Settled or not, they are not ours any more.
            self.partition.leases.settled(chunk.iter().map(|settlement| &settlement.lease.held));
            self.partition.outbox.settled(chunk.len());
            let copy = |one: &Settlement| Some((one.lease.held.key.clone(), one.restore.clone()?));
            let copies = chunk.iter().filter_map(copy).collect();
            write_back::write_back(&self.partition, &follows, &copies).await;
            self.set_remote_markers(follows);
        }
    }

    /// Tells Redis of so many ends, for as long as a lease: the answer, and whether it may be that of a
    /// repeat. What cannot be delivered leaves its timers claimed: they run again once the lease is over.
    async fn deliver<T, F>(&self, count: usize, mut call: impl FnMut() -> F) -> Option<(T, bool)>
    where
        F: Future<Output = Result<T>>,
    {
        let (topic, stats) = (&self.partition.topic, &self.partition.topic.stats);
        let (mut repeated, throttle) = (false, LogThrottle::default());
        let complain = |error: &Error| {
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
        match retry_settling(topic.config.lease, call, complain).await {
            Ok(answer) => Some((answer, repeated)),
            Err(error) => {
                stats.unsettled.add(count);
                error!(
                    ?topic, count, %error,
                    "attempts ended, but could not be settled: they will run again when their leases end"
                );
                None
            }
        }
    }

    /// What follows, and when.
    async fn ack(&self, acks: &[LeaseRef]) -> Vec<MarkerWrite> {
        let Partition { topic, store, names, clock, .. } = &*self.partition;
        let mut sent = Instant::now();
        let call = || {
            sent = Instant::now();
            store.ack(names, topic.config.marker_keys, acks)
        };
        let Some((reply, repeated)) = self.deliver(acks.len(), call).await else { return Vec::new() };
        // At a high rate this is quicker than any claim.
        clock.read(sent, ClockReading::now(reply.stamp));
        // The repeat of an unanswered ack finds its own work done.
        if !repeated && !reply.gone.is_empty() {
            topic.stats.gone.add(reply.gone.len());
            warn!(
                ?topic,
                count = reply.gone.len(),
                "attempts ended after their lease: the timers were cancelled or run again elsewhere"
            );
        }
        record_markers(&self.partition, &reply.triggers);
        let followed = reply.followed.iter();
        followed.filter_map(|next| Some(trigger(acks.get(next.place)?, 1, next.deadline))).collect()
    }

    /// The same of other ends.
    async fn end(&self, ends: &[Settle]) -> Vec<MarkerWrite> {
        let Partition { topic, store, names, .. } = &*self.partition;
        let call = || store.settle(names, topic.config.dead_letters, topic.config.marker_keys, ends);
        let Some((settled, repeated)) = self.deliver(ends.len(), call).await else {
            return Vec::new();
        };
        record_markers(&self.partition, &settled.triggers);
        topic.stats.trimmed.add_u64(settled.trimmed);
        let mut triggers = Vec::new();
        for (settle, reply) in ends.iter().zip(settled.each) {
            self.note(settle, reply, repeated);
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
                // What waits now is another arming.
                (
                    AttemptEnd::Retry { .. }
                    | AttemptEnd::Snooze { .. }
                    | AttemptEnd::Again { .. }
                    | AttemptEnd::Dead { .. },
                    _,
                ) => 1,
            };
            triggers.push(trigger(&settle.held, attempt, deadline));
        }
        triggers
    }

    fn note(&self, Settle { held, end }: &Settle, reply: SettleReply, repeated: bool) {
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
            AttemptEnd::Dead { reason, history } => dead_letter(topic, held, *reason, history),
            _ => {}
        }
    }

    /// The same where trigger keys lie elsewhere than the index.
    fn set_remote_markers(&self, triggers: Vec<MarkerWrite>) {
        let Partition { topic, store, .. } = &*self.partition;
        if triggers.is_empty() || !topic.config.marker_keys || !store.markers_need_own_calls() {
            return;
        }
        let partition = self.partition.clone();
        // Their servers may be away, and the next ends do not wait for that.
        tokio::spawn(async move {
            let mut set = MarkerWriteReport::default();
            for became in partition.store.set_markers(&triggers).await {
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

/// A missing trigger needs no repair, since the index fires: so a failure is only reported.
fn record_markers(partition: &Partition, set: &MarkerWriteReport) {
    partition.topic.stats.taken_markers.add(usize::try_from(set.taken).unwrap_or(usize::MAX));
    if let Some(error) = &set.refused {
        debug!(topic = ?partition.topic, %error, "trigger keys not set");
    }
}

fn trigger(held: &LeaseRef, attempt: u32, deadline: u64) -> MarkerWrite {
    MarkerWrite { key: held.key.clone(), deadline, attempt, moved: false }
}
