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
    let lease = partition.topic.config.lease;
    let mut beat = tokio::time::interval(lease / 6);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        beat.tick().await;
        let before = Instant::now();
        let aging = partition.leases.extended_before(before.checked_sub(lease / 6).unwrap_or(before));
        for batch in aging.chunks(MAX_BATCH) {
            if let Err(error) = extend(&partition, batch).await {
                debug!(topic = %partition.topic.config.name, %error, "leases not renewed");
                break;
            }
        }
        let lost = partition.leases.distrust(partition.topic.config.trust());
        if lost > 0 {
            partition.topic.stats.lost_leases.add(lost);
            warn!(topic = %partition.topic.config.name, count = lost, "leases lost: they could not be renewed in time");
        }
    }
}

async fn extend(partition: &Partition, batch: &[Held]) -> Result<()> {
    let since = Instant::now();
    let lost = partition.store.renew(&partition.names, ms_ceil(partition.topic.config.lease), batch).await?;
    partition.leases.extended(batch.iter(), since);
    for place in lost {
        // What was settled while the call was on its way is no loss.
        if batch
            .get(place)
            .is_some_and(|held| partition.outbox.is_not_settling(held) && partition.leases.lose(held))
        {
            partition.topic.stats.lost_leases.add(1);
            warn!(topic = %partition.topic.config.name, "lease lost: another listener has the timer, or it was cancelled");
        }
    }
    Ok(())
}
