//! Tells Redis how attempts ended, batch after batch.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;
use tracing::{debug, error, warn};

use crate::attached::write_back;
use crate::connection::insist;
use crate::error::{Error, Result};
use crate::escape::Escaped;
use crate::log_throttle::LogThrottle;
use crate::runtime::{Partition, Settlement};
use crate::time::Reading;
use crate::wire::{AckReply, DeadReason, End, Held, MAX_BATCH, Settle, SettleReply, Trigger, TriggerReply};

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
            for Settlement { held, end, .. } in chunk {
                match end {
                    None => acks.push(held.clone()),
                    Some(end) => ends.push(Settle { held: held.clone(), end: end.clone() }),
                }
            }
            let mut triggers = Vec::new();
            self.report(self.ack(&acks, &mut triggers).await, acks.len());
            self.report(self.end(&ends, &mut triggers).await, ends.len());
            // Settled or not, they are not ours any more.
            self.partition.leases.settled(chunk.iter().map(|settlement| &settlement.held));
            self.partition.outbox.settled(chunk);
            let copy = |one: &Settlement| Some((one.held.key.clone(), one.restore.clone()?));
            let copies = chunk.iter().filter_map(copy).collect();
            write_back::write_back(&self.partition, &triggers, &copies).await;
            self.set_triggers(&triggers).await;
        }
    }

    /// A settlement that cannot be delivered leaves the timer claimed: it runs
    /// again once the lease is over.
    fn report(&self, result: Result<()>, count: usize) {
        if let Err(reason) = result {
            self.partition.topic.stats.unsettled.add(count);
            error!(
                topic = %self.partition.topic.config.name, count, error = %reason,
                "attempts ended, but could not be settled: they will run again when their leases end"
            );
        }
    }

    /// Says why nothing can be settled, once for each reason.
    fn throttle(&self) -> impl FnMut(&Error) {
        let mut throttle = LogThrottle::default();
        move |reason| {
            if !throttle.should_log(reason) {
                return;
            }
            self.partition.topic.stats.settle_errors.add(1);
            if reason.needs_operator() || self.partition.outage.should_log(reason) {
                warn!(
                    topic = %self.partition.topic.config.name, partition = self.partition.names.index, error = %reason,
                    "cannot settle; trying again for the time of a lease"
                );
            }
        }
    }

    async fn ack(&self, acks: &[Held], triggers: &mut Vec<Trigger>) -> Result<()> {
        if acks.is_empty() {
            return Ok(());
        }
        let (mut repeated, mut sent) = (false, Instant::now());
        let call = |repeat| {
            (repeated, sent) = (repeated | repeat, Instant::now());
            self.partition.store.ack(&self.partition.names, acks)
        };
        let reply: AckReply = insist(self.partition.topic.config.lease, call, self.throttle()).await?;
        // At a high rate this is quicker than any claim.
        self.partition.clock.read(sent, Reading::now(reply.stamp));
        for followed in reply.followed {
            let key = acks.get(followed.place).map(|held| held.key.clone()).unwrap_or_default();
            triggers.push(trigger(key, 1, followed.deadline));
        }
        // The repeat of an unanswered ack finds its own work done.
        if !repeated && !reply.gone.is_empty() {
            self.partition.topic.stats.gone.add(reply.gone.len());
            warn!(
                topic = %self.partition.topic.config.name, count = reply.gone.len(),
                "attempts ended after their lease: the timers were cancelled or run again elsewhere"
            );
        }
        Ok(())
    }

    async fn end(&self, ends: &[Settle], triggers: &mut Vec<Trigger>) -> Result<()> {
        if ends.is_empty() {
            return Ok(());
        }
        let config = &self.partition.topic.config;
        let mut repeated = false;
        let call = |repeat| {
            repeated |= repeat;
            self.partition.store.settle(&self.partition.names, config.letters, ends)
        };
        let replies = insist(config.lease, call, self.throttle()).await?;
        for (settle, reply) in ends.iter().zip(replies) {
            self.note(settle, reply, repeated);
            let key = settle.held.key.clone();
            match (&settle.end, reply) {
                (End::Release, _) | (_, SettleReply::Gone | SettleReply::Settled(None)) => {}
                (
                    End::Retry { attempt, .. } | End::Snooze { attempt, .. },
                    SettleReply::Settled(Some((deadline, _))),
                ) => {
                    triggers.push(trigger(key, *attempt, deadline));
                }
                (_, SettleReply::Settled(Some((deadline, _))) | SettleReply::GaveWay(deadline, _)) => {
                    triggers.push(trigger(key, 1, deadline));
                }
            }
        }
        Ok(())
    }

    fn note(&self, settle: &Settle, reply: SettleReply, repeated: bool) {
        let stats = &self.partition.topic.stats;
        match (&settle.end, reply) {
            (_, SettleReply::Gone) if repeated => {}
            (_, SettleReply::Gone) => stats.gone.add(1),
            (End::Retry { .. }, SettleReply::GaveWay(..)) => stats.superseded.add(1),
            (End::Retry { attempt, .. }, _) => {
                stats.retried.add(1);
                debug!(topic = %self.partition.topic.config.name, key = %Escaped(&settle.held.key), attempt, "retry");
            }
            (End::Snooze { .. }, _) => stats.snoozed.add(1),
            (End::Again { .. }, _) => stats.again.add(1),
            (End::Dead { reason, .. }, _) => self.note_dead(settle, *reason),
            (End::Release, _) => stats.released.add(1),
        }
    }

    fn note_dead(&self, settle: &Settle, reason: DeadReason) {
        self.partition.topic.stats.dead.add(1);
        warn!(
            topic = %self.partition.topic.config.name,
            key = %Escaped(&settle.held.key),
            reason = reason.as_str(),
            "dead letter"
        );
    }

    /// A missing trigger needs no repair, since the index fires: so a failure
    /// is only reported.
    async fn set_triggers(&self, triggers: &[Trigger]) {
        if triggers.is_empty() || !self.partition.topic.config.triggers {
            return;
        }
        match self.partition.store.set_triggers(triggers).await {
            Ok(replies) => {
                let taken = replies.iter().filter(|reply| **reply == TriggerReply::Taken).count();
                self.partition.topic.stats.taken_triggers.add(taken);
            }
            Err(error) => debug!(topic = %self.partition.topic.config.name, %error, "trigger keys not set"),
        }
    }
}

/// The key of the last attempt is in its last millisecond, or gone.
fn trigger(key: Bytes, attempt: u32, deadline: u64) -> Trigger {
    Trigger { key, deadline, attempt, moved: false }
}
