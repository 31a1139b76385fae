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

/// Entries that are looked at in a step, roughly, and what they cost: for the whole listener 200 every 5 s. A
/// million records take it seven hours, and cost nothing that anybody would notice.
const ENTRIES: usize = 200;
const EVERY: Duration = Duration::from_secs(5);
/// Where there is nothing to look at, a round through all partitions takes no longer than this.
const ROUND: Duration = Duration::from_secs(300);
/// Between two steps where requests are saved.
const FEW: Duration = Duration::from_secs(30);
/// Where something was out of order there may be more.
const HURRY: Duration = Duration::from_millis(100);

const SCANS: [Scan; 6] =
    [Scan::Records, Scan::States, Scan::Next, Scan::Tried, Scan::Slots, Scan::Tombstones];

/// Goes through all partitions, over and over, until it is dropped.
pub(crate) async fn repair(runtime: Arc<Runtime>) {
    let steps = u32::try_from(runtime.partitions.len() * SCANS.len()).unwrap_or(u32::MAX);
    let mut rounds = runtime.client.rounds();
    let pace = Pace {
        at_least: rounds.pace((ROUND / steps.max(1)).min(EVERY), FEW),
        at_most: rounds.pace(EVERY, FEW),
    };
    let mut wait = pace.at_most;
    loop {
        rounds.next(Instant::now() + wait, pace.at_most).await;
        rounds.begin();
        wait = Duration::ZERO;
        for partition in &runtime.partitions {
            for what in SCANS {
                wait = scan(partition, what, wait, pace).await;
            }
        }
        if wait == HURRY {
            rounds = runtime.client.rounds(); // there may be more: the next is made in any case
        }
    }
}

/// How long to wait after a step.
#[derive(Clone, Copy, Debug)]
struct Pace {
    at_least: Duration,
    at_most: Duration,
}

impl Pace {
    /// After a step that has looked at so many.
    fn after(self, looked_at: u64) -> Duration {
        EVERY.mul_f64(looked_at as f64 / ENTRIES as f64).clamp(self.at_least, self.at_most)
    }
}

/// Goes through one index, a step after each wait; how long to wait before the next.
async fn scan(partition: &Partition, what: Scan, mut wait: Duration, pace: Pace) -> Duration {
    let topic = &partition.topic;
    let mut step = RepairStep { what, cursor: 0, count: ENTRIES, lease_ms: ms_ceil(topic.config.lease) };
    loop {
        tokio::time::sleep(wait).await;
        let reply = match partition.store.repair(&partition.names, step.clone()).await {
            Ok(reply) => reply,
            Err(error) => {
                debug!(%error, "repair step failed");
                return pace.after(0);
            }
        };
        wait = if reply.repaired > 0 { HURRY } else { pace.after(reply.looked_at) };
        if what != Scan::Tombstones {
            topic.stats.repaired.add_u64(reply.repaired);
        }
        if reply.repaired > 0 && !matches!(what, Scan::Slots | Scan::Tombstones) {
            warn!(?topic, count = reply.repaired, scan = ?what, "entries were put right");
        }
        if reply.cursor == 0 {
            return wait;
        }
        step.cursor = reply.cursor;
    }
}
