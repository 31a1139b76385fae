//! Renews leases, and gives them up in time if they were not renewed, or if their handlers do not end.
//!
//! Renewals wait for the server. [`guard_leases`] waits only for a clock that also advances while the machine is
//! suspended. A handler therefore receives notice before another listener can start its timer.

use std::sync::Arc;

use tokio::time::Instant;

use crate::boottime::{BoottimeSleep, now};
use crate::error::Result;
use crate::escape::Escaped;
use crate::log::{debug, error, warn};
use crate::runtime::{Partition, Runtime};
use crate::time::ms_ceil;
use crate::wire::{LeaseRef, portions};

/// Renews the leases of one partition, until it is dropped. Every sixth of the lease time, it renews leases whose last
/// renewal is more than a sixth ago. Each lease is thus renewed after at most a third of its time. A lease whose renewal a
/// late attempt waits for is renewed immediately.
pub(crate) async fn keep_leases(partition: Arc<Partition>) {
    let lease = partition.topic.config.lease;
    let mut beat = tokio::time::interval_at(Instant::now() + lease / 6, lease / 6);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = beat.tick() => {}
            () = partition.leases.wait_until_renewal_wanted() => {}
        }
        let before = now();
        let due = partition.leases.to_renew(before.checked_sub(lease / 6).unwrap_or(before));
        for batch in portions(&due) {
            if let Err(error) = renew(&partition, batch).await {
                debug!(topic = ?partition.topic, %error, "leases not renewed");
                break;
            }
        }
    }
}

async fn renew(partition: &Partition, batch: &[LeaseRef]) -> Result<()> {
    let (sent, topic) = (now(), &partition.topic);
    let gone = partition.store.renew(&partition.names, ms_ceil(topic.config.lease), batch).await?;
    let lost: Vec<_> = gone.into_iter().filter_map(|place| batch.get(place)).collect();
    let ours = partition.leases.apply_renewal(batch, &lost, sent);
    if ours > 0 {
        topic.stats.lost_leases.add(ours);
        warn!(?topic, count = ours, "leases lost: another listener has the timers, or they were cancelled");
    }
    Ok(())
}

/// Gives up leases that were not renewed in time, and leases of attempts that did not end in time, until it is dropped.
pub(crate) async fn guard_leases(runtime: Arc<Runtime>) {
    let alarm = BoottimeSleep::new(runtime.client.virtual_time());
    loop {
        let next = runtime.partitions.iter().map(|partition| guard_partition(partition)).min();
        alarm.wait(next.unwrap_or_else(now)).await;
    }
}

/// Gives up the failed leases of a partition, and logs them. Returns when to check again.
fn guard_partition(partition: &Partition) -> tokio::time::Instant {
    let topic = &partition.topic;
    let (given_up, next) = partition.leases.give_up_failed();
    topic.stats.lost_leases.add(given_up.not_extended + given_up.overdue.len());
    if given_up.not_extended > 0 {
        warn!(?topic, count = given_up.not_extended, "leases lost: they could not be renewed in time");
    }
    for held in &given_up.overdue {
        let (key, timeout) = (Escaped(&held.key), topic.config.timeout);
        error!(
            ?topic, %key, ?timeout,
            "lease given up: the attempt does not end at its timeout; its handler blocks a thread, or its runtime is blocked"
        );
    }
    next
}
