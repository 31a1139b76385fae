//! The slow repair: finds records that the index has lost. No fault in our
//! model leaves them behind; a deleted key, a restored backup or an evicted
//! index does.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::log::{debug, warn};
use crate::runtime::{Partition, Runtime};
use crate::time::ms_ceil;
use crate::wire::{RepairStep, Scan};

/// One step for the whole listener: a million records take it seven hours, and
/// cost nothing that anybody would notice.
const EVERY: Duration = Duration::from_secs(5);
/// Entries in one step, roughly.
const ENTRIES: usize = 200;
/// Where something was out of order there may be more.
const HURRY: Duration = Duration::from_millis(100);

const SCANS: [Scan; 4] = [Scan::Records, Scan::States, Scan::Next, Scan::Slots];

/// Goes through all partitions, over and over, until it is dropped.
pub(crate) async fn repair(runtime: Arc<Runtime>) {
    let (mut wait, mut rounds) = (EVERY, runtime.client.rounds());
    loop {
        rounds.next(Instant::now() + wait, EVERY).await;
        rounds.begin();
        wait = Duration::ZERO;
        for partition in &runtime.partitions {
            for what in SCANS {
                wait = scan(partition, what, wait).await;
            }
        }
        if wait == HURRY {
            rounds = runtime.client.rounds(); // there may be more: the next is made in any case
        }
    }
}

/// Goes through one hash, a step after each wait; how long to wait before the next.
async fn scan(partition: &Partition, what: Scan, mut wait: Duration) -> Duration {
    let topic = &partition.topic;
    let mut step = RepairStep { what, cursor: 0, count: ENTRIES, lease_ms: ms_ceil(topic.config.lease) };
    loop {
        tokio::time::sleep(wait).await;
        let (cursor, repaired) = match partition.store.repair(&partition.names, step.clone()).await {
            Ok(reply) => (reply.cursor, reply.repaired),
            Err(error) => {
                debug!(%error, "repair step failed");
                (0, 0)
            }
        };
        topic.stats.repaired.add_u64(repaired);
        if repaired > 0 && what != Scan::Slots {
            warn!(?topic, count = repaired, scan = ?what, "entries were put right");
        }
        wait = if repaired > 0 { HURRY } else { EVERY };
        if cursor == 0 {
            return wait;
        }
        step.cursor = cursor;
    }
}
