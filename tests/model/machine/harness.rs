//! Where lives are played: servers that begin anew each time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use keylapse_wire::DeadLetterLimits;
use tokio::runtime::{Builder, Runtime};

use super::driver::{Driver, Verdict};
use super::op::Step;
use crate::model::rig::{Events, Rig};

/// A server, and what its listeners hear.
pub(crate) struct Served {
    pub(super) rig: Rig,
    pub(super) events: Events,
}

impl Served {
    async fn new(rig: Rig) -> Self {
        Self { events: Events::open(&rig).await, rig }
    }
}

pub(crate) struct Harness {
    runtime: Runtime,
    /// The oracle watches the first.
    servers: Vec<Served>,
}

impl Harness {
    pub(crate) fn open(name: &str) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
        let servers = runtime.block_on(async {
            let rigs = [Rig::in_process(name).await, Rig::real(name).await];
            let mut servers = Vec::new();
            for rig in rigs {
                servers.push(Served::new(rig).await);
            }
            servers
        });
        Self { runtime, servers }
    }

    /// Plays one life to its end, and says what was wrong with it.
    pub(crate) fn play(&mut self, letters: DeadLetterLimits, steps: &[Step], promises: bool) -> Verdict {
        self.runtime.block_on(async {
            for Served { rig, events } in &mut self.servers {
                rig.reset(start()).await;
                // In half of the lives somebody looks on, and a short journal is kept: neither is to change anything.
                if steps.len().is_multiple_of(2) {
                    rig.put_meta("watched_until", "9000000000000").await;
                    rig.put_meta("journal", "5:20000").await;
                }
                events.so_far(rig).await;
            }
            let mut driver = Driver::new(&mut self.servers, letters, promises);
            for (place, step) in steps.iter().enumerate() {
                driver.play(step).await.map_err(|why| format!("at step {place}, {step:?}:\n{why}"))?;
            }
            driver.compare().await?;
            if promises {
                driver.drain().await.map_err(|why| format!("at the end: {why}"))?;
                driver.compare().await?;
            }
            driver.compare_events().await
        })
    }
}

/// The same for every life, so that failures repeat.
fn start() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_700_000_000) + Duration::from_micros(250)
}
