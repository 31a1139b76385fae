//! Looks for what is overdue, whatever was or was not heard.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::debug;

use crate::error::Result;
use crate::events::Gap;
use crate::lapse::LapseSource;
use crate::runtime::Runtime;
use crate::time::Reading;
use crate::wire::Heads;

/// While a canary is heard, wake-ups tell of new work, and the sweep is a second line.
const CALM: Duration = Duration::from_secs(5);
/// While none is heard, it is what finds new work.
const ALERT: Duration = Duration::from_secs(1);

/// Peeks at every partition.
#[derive(Debug)]
pub(crate) struct Sweeper {
    runtime: Arc<Runtime>,
    alert: AtomicBool,
    now: Notify,
}

impl Sweeper {
    pub(crate) fn new(runtime: Arc<Runtime>) -> Self {
        Self { runtime, alert: AtomicBool::new(true), now: Notify::new() }
    }

    /// Something may have been missed: sweep at once, and often until events
    /// flow again.
    pub(crate) fn gap(&self, gap: Gap) {
        if gap != Gap::Overflow {
            self.alert.store(true, Ordering::Relaxed);
        }
        self.now.notify_one();
    }

    /// Events flow: what was missed before is looked for once.
    pub(crate) fn anchored(&self) {
        self.alert.store(false, Ordering::Relaxed);
        self.now.notify_one();
    }

    /// Until it is dropped.
    pub(crate) async fn run(&self) {
        let mut rounds = self.runtime.client.rounds();
        loop {
            let calm = if self.alert.load(Ordering::Relaxed) { ALERT } else { CALM };
            tokio::select! {
                biased;
                () = self.now.notified() => {}
                () = rounds.next(Instant::now() + calm, calm) => {}
            }
            rounds.begin();
            if let Err(error) = self.tick().await {
                self.runtime.stats.sweep_errors.add(1);
                debug!(%error, "sweep failed");
            }
        }
    }

    /// Sweeps once: wakes each partition that has something due, and tells the
    /// others what is next.
    pub(crate) async fn tick(&self) -> Result<()> {
        self.runtime.stats.sweeps.add(1);
        let partitions: Vec<_> =
            self.runtime.partitions.iter().map(|partition| partition.names.clone()).collect();
        let (stamp, heads) = self.runtime.client.store().peek(&partitions).await?;
        let reading = Reading::now(stamp);
        for (index, heads) in heads.into_iter().enumerate() {
            self.tell(index, heads, reading);
        }
        Ok(())
    }

    fn tell(&self, index: usize, heads: Heads, reading: Reading) {
        let partition = &self.runtime.partitions[index];
        match heads.due {
            Some(ms) if ms <= reading.stamp.ms() => partition.wakeup.look(Instant::now(), LapseSource::Sweep),
            Some(ms) => partition.wakeup.head(ms),
            None => {}
        }
        if let Some(ms) = heads.quarantine {
            partition.quarantine.head(ms);
        }
    }
}
