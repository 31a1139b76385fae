//! Looks for what is overdue, whatever was or was not heard.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::Result;
use crate::log::debug;
use crate::runtime::Runtime;
use crate::source::LapseSource;
use crate::time::Reading;

/// While a canary is heard, wake-ups tell of new work, and the sweep is a second line.
const CALM: Duration = Duration::from_secs(5);
/// While none is heard, it is what finds new work.
const ALERT: Duration = Duration::from_secs(1);

/// Peeks at every partition.
pub(crate) struct Sweeper {
    pub(crate) runtime: Arc<Runtime>,
    /// Whether events flow. Whenever that is said, something may have been missed before.
    pub(crate) calm: watch::Receiver<bool>,
}

impl Sweeper {
    /// Until it is dropped.
    pub(crate) async fn run(mut self) {
        let mut rounds = self.runtime.client.rounds();
        loop {
            // Not taken as heard: what is said during a sweep leads to the next.
            let wait = if *self.calm.borrow() { CALM } else { ALERT };
            tokio::select! {
                biased;
                _ = self.calm.changed() => {}
                () = rounds.next(Instant::now() + wait, wait) => {}
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
        let sent = Instant::now();
        let (stamp, heads) = self.runtime.client.store.peek(&partitions).await?;
        let reading = Reading::now(stamp);
        for (partition, heads) in self.runtime.partitions.iter().zip(heads) {
            partition.condition.note_head(stamp.ms(), heads.due);
            // Where nothing is claimed for hours, this alone shows that the server's clock was set forward.
            partition.clock.read(sent, reading);
            match heads.due {
                Some(ms) if ms <= stamp.ms() => partition.wakeup.look(Instant::now(), LapseSource::Sweep),
                Some(ms) => partition.wakeup.head(ms),
                None => {}
            }
            if let Some(ms) = heads.quarantine {
                partition.quarantine.head(ms);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lapse::Lapse;
    use crate::listener::Listener;
    use crate::outcome::{Done, Failure};
    use crate::testing::TestBed;
    use crate::topic::Topic;

    #[tokio::test(start_paused = true)]
    async fn what_is_said_during_a_sweep_leads_to_the_next() {
        let bed = TestBed::new();
        let topic = Topic::<u32>::new("a:{id}").unwrap();
        let handler = |_: Lapse<u32>| std::future::ready(Ok::<_, Failure>(Done));
        let runtime = Listener::builder(bed.client()).on(topic, handler).build().unwrap().runtime;
        let sweeper = Sweeper { runtime: runtime.clone(), calm: runtime.calm.subscribe() };
        let sweeping = tokio::spawn(sweeper.run());
        runtime.calm.send_replace(true);
        tokio::task::yield_now().await;
        assert_eq!(runtime.stats.sweeps.get(), 1, "it is on its way");
        runtime.calm.send_replace(true);
        tokio::time::sleep(ALERT).await;
        assert_eq!(runtime.stats.sweeps.get(), 2);
        sweeping.abort();
    }
}
