//! The slow repair: finds records that the index has lost. No fault in our
//! model leaves them behind; a deleted key, a restored backup or an evicted
//! index does.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, warn};

use crate::error::Result;
use crate::runtime::Runtime;
use crate::time::ms_ceil;
use crate::wire::{RepairStep, Repaired, Scan};

/// One step for the whole listener: a million records take it seven hours, and
/// cost nothing that anybody would notice.
const EVERY: Duration = Duration::from_secs(5);
/// Entries in one step, roughly.
const ENTRIES: usize = 200;
/// Where something was out of order there may be more.
const HURRY: Duration = Duration::from_millis(100);

const SCANS: [Scan; 4] = [Scan::Records, Scan::States, Scan::Next, Scan::Slots];

/// Where the repair has got to.
#[derive(Debug)]
pub(crate) struct Repair {
    runtime: Arc<Runtime>,
    partition: usize,
    scan: usize,
    cursor: u64,
}

impl Repair {
    pub(crate) fn new(runtime: Arc<Runtime>) -> Self {
        Self { runtime, partition: 0, scan: 0, cursor: 0 }
    }

    /// Until it is dropped.
    pub(crate) async fn run(mut self) {
        let (mut wait, mut rounds) = (EVERY, self.runtime.client.rounds());
        loop {
            if self.is_at_the_beginning() {
                rounds.next(Instant::now() + wait, EVERY).await;
                rounds.begin();
            } else {
                tokio::time::sleep(wait).await;
            }
            wait = match self.tick().await {
                Ok(reply) if reply.repaired > 0 => {
                    rounds = self.runtime.client.rounds(); // the next is made in any case
                    HURRY
                }
                Ok(_) => EVERY,
                Err(error) => {
                    debug!(%error, "repair step failed");
                    EVERY
                }
            };
        }
    }

    /// One step.
    pub(crate) async fn tick(&mut self) -> Result<Repaired> {
        let partition = &self.runtime.partitions[self.partition];
        let config = &partition.topic.config;
        let what = SCANS[self.scan];
        let step = RepairStep { what, cursor: self.cursor, count: ENTRIES, lease_ms: ms_ceil(config.lease) };
        let reply = self.runtime.client.store().repair(&partition.names, step).await;
        if let Ok(reply) = &reply {
            partition.topic.stats.repaired.add_u64(reply.repaired);
            if reply.repaired > 0 && what != Scan::Slots {
                warn!(topic = %config.name, count = reply.repaired, scan = ?what, "entries were put right");
            }
        }
        self.go_on(reply.as_ref().map_or(0, |reply| reply.cursor));
        reply
    }

    fn is_at_the_beginning(&self) -> bool {
        (self.partition, self.scan, self.cursor) == (0, 0, 0)
    }

    fn go_on(&mut self, cursor: u64) {
        self.cursor = cursor;
        if cursor != 0 {
            return;
        }
        self.scan = (self.scan + 1) % SCANS.len();
        if self.scan == 0 {
            self.partition = (self.partition + 1) % self.runtime.partitions.len();
        }
    }
}
