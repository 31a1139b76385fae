//! Keeps the leases of one partition.

use std::sync::Arc;

use tokio::time::Instant;

use crate::boottime::now;
use crate::error::Result;
use crate::log::{debug, warn};
use crate::runtime::Partition;
use crate::time::ms_ceil;
use crate::wire::{Held, portions};

/// Extends, every sixth of the lease, what was last extended more than a sixth
/// ago: so each lease is extended at about a third. And at once, what is about to be begun late.
/// What cannot be extended in time is for the [guard](super::lease_guard).
pub(crate) async fn keep_leases(partition: Arc<Partition>) {
    let lease = partition.topic.config.lease;
    let mut beat = tokio::time::interval_at(Instant::now() + lease / 6, lease / 6);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = beat.tick() => {}
            () = partition.leases.renewal_wanted() => {}
        }
        let before = now();
        let due = partition.leases.to_renew(before.checked_sub(lease / 6).unwrap_or(before));
        for batch in portions(&due) {
            if let Err(error) = extend(&partition, batch).await {
                debug!(topic = ?partition.topic, %error, "leases not renewed");
                break;
            }
        }
    }
}

async fn extend(partition: &Partition, batch: &[Held]) -> Result<()> {
    let (sent, topic) = (now(), &partition.topic);
    let gone = partition.store.renew(&partition.names, ms_ceil(topic.config.lease), batch).await?;
    let lost: Vec<_> = gone.into_iter().filter_map(|place| batch.get(place)).collect();
    let ours = partition.leases.renewed(batch, &lost, sent);
    if ours > 0 {
        topic.stats.lost_leases.add(ours);
        warn!(?topic, count = ours, "leases lost: another listener has the timers, or they were cancelled");
    }
    Ok(())
}
