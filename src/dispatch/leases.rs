//! Keeps the leases of one partition.

use std::sync::Arc;

use tokio::time::Instant;
use tracing::{debug, warn};

use crate::error::Result;
use crate::listener::Desk;
use crate::store::{Held, MAX_BATCH, Store};
use crate::time::ms_ceil;

/// Extends, every sixth of the lease, what was last extended more than a sixth
/// ago: so each lease is extended at about a third. What cannot be extended in
/// time is given up.
pub(crate) async fn keep_leases(store: Arc<dyn Store>, desk: Arc<Desk>) {
    let lease = desk.topic.shape.lease;
    let mut beat = tokio::time::interval(lease / 6);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        beat.tick().await;
        let before = Instant::now();
        let aging = desk.flights.extended_before(before.checked_sub(lease / 6).unwrap_or(before));
        for batch in aging.chunks(MAX_BATCH) {
            if let Err(error) = extend(&*store, &desk, batch).await {
                debug!(topic = %desk.topic.shape.name, %error, "leases not renewed");
                break;
            }
        }
        let lost = desk.flights.distrust(desk.topic.shape.trust());
        if lost > 0 {
            desk.topic.stats.lost_leases.add(lost);
            warn!(topic = %desk.topic.shape.name, count = lost, "leases lost: they could not be renewed in time");
        }
    }
}

async fn extend(store: &dyn Store, desk: &Desk, batch: &[Held]) -> Result<()> {
    let since = Instant::now();
    let gone = store.renew(&desk.at, ms_ceil(desk.topic.shape.lease), batch).await?;
    // What was settled while the call was on its way is no loss.
    let lost: Vec<_> = gone
        .into_iter()
        .filter_map(|place| batch.get(place))
        .filter(|held| desk.outbox.is_not_settling(held))
        .collect();
    let ours = desk.flights.renewed(batch, &lost, since);
    if ours > 0 {
        desk.topic.stats.lost_leases.add(ours);
        warn!(
            topic = %desk.topic.shape.name, count = ours,
            "leases lost: another listener has the timers, or they were cancelled"
        );
    }
    Ok(())
}
