//! Takes leases away in time: from what was not renewed, and from handlers that do not end.
//!
//! Renewals wait for a server that does not answer; this waits for nothing but the clock, and that goes on while the
//! machine is suspended. So a handler is told before anybody else can start.

use std::sync::Arc;

use crate::boottime::{Alarm, now};
use crate::escape::Escaped;
use crate::log::{error, warn};
use crate::runtime::{Partition, Runtime};

/// Until it is dropped.
pub(crate) async fn guard_leases(runtime: Arc<Runtime>) {
    let alarm = Alarm::new(runtime.client.virtual_time());
    loop {
        let next = runtime.partitions.iter().map(|partition| look(partition)).min();
        alarm.wait(next.unwrap_or_else(now)).await;
    }
}

/// Gives up what can be relied on no longer; when to look again.
fn look(partition: &Partition) -> tokio::time::Instant {
    let topic = &partition.topic;
    let (given_up, next) = partition.leases.guard();
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
