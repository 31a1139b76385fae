//! Keeps the leases of one partition.

use std::sync::Arc;

use tokio::time::Instant;
use tracing::{debug, warn};

use crate::error::Result;
use crate::runtime::Partition;
use crate::time::ms_ceil;
use crate::wire::{Held, MAX_BATCH};

/// Extends, every sixth of the lease, what was last extended more than a sixth
/// ago: so each lease is extended at about a third. What cannot be extended in
/// time is given up.
pub(crate) async fn keep_leases(partition: Arc<Partition>) {
    let (topic, lease) = (&partition.topic, partition.topic.config.lease);
    let mut beat = tokio::time::interval(lease / 6);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        beat.tick().await;
        let before = Instant::now();
        let aging = partition.leases.extended_before(before.checked_sub(lease / 6).unwrap_or(before));
        for batch in aging.chunks(MAX_BATCH) {
            if let Err(error) = extend(&partition, batch).await {
                debug!(?topic, %error, "leases not renewed");
                break;
            }
        }
        let lost = partition.leases.distrust(topic.config.trust());
        if lost > 0 {
            topic.stats.lost_leases.add(lost);
            warn!(?topic, count = lost, "leases lost: they could not be renewed in time");
        }
    }
}

async fn extend(partition: &Partition, batch: &[Held]) -> Result<()> {
    let (since, topic) = (Instant::now(), &partition.topic);
    let gone = partition.store.renew(&partition.names, ms_ceil(topic.config.lease), batch).await?;
    // What was settled while the call was on its way is no loss.
    let lost = gone.into_iter().filter_map(|place| batch.get(place));
    let lost: Vec<_> = lost.filter(|held| partition.outbox.is_not_settling(held)).collect();
    let ours = partition.leases.renewed(batch, &lost, since);
    if ours > 0 {
        topic.stats.lost_leases.add(ours);
        warn!(?topic, count = ours, "leases lost: another listener has the timers, or they were cancelled");
    }
    Ok(())
}
