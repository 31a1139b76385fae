//! Looks for what is overdue, whatever was or was not heard.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::Result;
use crate::log::debug;
use crate::runtime::{NodeState, Runtime};
use crate::source::LapseSource;
use crate::time::{Reading, ServerTime};
use crate::wire::Heads;

/// While a canary is heard, wake-ups tell of new work, and the sweep is a second line.
const CALM: Duration = Duration::from_secs(5);
/// While none is heard, it is what finds new work.
const ALERT: Duration = Duration::from_secs(1);
/// The same where requests are saved.
const FEW_CALM: Duration = Duration::from_secs(20);
const FEW_ALERT: Duration = Duration::from_secs(15);

/// Peeks at every partition of one server.
pub(crate) struct Sweeper {
    runtime: Arc<Runtime>,
    node: Arc<NodeState>,
    /// Whether events flow. Whenever that is said, something may have been missed before.
    calm: watch::Receiver<bool>,
}

impl Sweeper {
    pub(crate) fn new(runtime: Arc<Runtime>, node: Arc<NodeState>) -> Self {
        let calm = node.calm.subscribe();
        Self { runtime, node, calm }
    }

    /// Until it is dropped.
    pub(crate) async fn run(mut self) {
        let mut rounds = self.runtime.client.rounds();
        loop {
            // Not taken as heard: what is said during a sweep leads to the next.
            let (usual, few) = if *self.calm.borrow() { (CALM, FEW_CALM) } else { (ALERT, FEW_ALERT) };
            let wait = rounds.pace(usual, few);
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
        let places = self.node.share.borrow().partitions.clone();
        let names: Vec<_> =
            places.iter().map(|place| self.runtime.partitions[*place].names.clone()).collect();
        let sent = Instant::now();
        let mut worst = Ok(());
        for (place, answer) in places.into_iter().zip(self.runtime.client.store.heads(&names).await) {
            match answer {
                Ok((stamp, heads)) => self.seen(place, sent, stamp, heads),
                Err(error) => worst = Err(error),
            }
        }
        worst
    }

    fn seen(&self, place: usize, sent: Instant, stamp: ServerTime, heads: Heads) {
        let partition = &self.runtime.partitions[place];
        partition.condition.note_head(stamp.ms(), heads.due);
        // Where nothing is claimed for hours, this alone shows that the server's clock was set forward.
        partition.clock.read(sent, Reading::now(stamp));
        match heads.due {
            Some(ms) if ms <= stamp.ms() => partition.wakeup.look(Instant::now(), LapseSource::Sweep),
            Some(ms) => partition.wakeup.head(ms),
            None => {}
        }
        if let Some(ms) = heads.quarantine {
            partition.quarantine.head(ms);
        }
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
        let node = NodeState::of(&runtime);
        let sweeper = Sweeper::new(runtime.clone(), node.clone());
        let sweeping = tokio::spawn(sweeper.run());
        node.calm.send_replace(true);
        tokio::task::yield_now().await;
        assert_eq!(runtime.stats.sweeps.get(), 1, "it is on its way");
        node.calm.send_replace(true);
        tokio::time::sleep(ALERT).await;
        assert_eq!(runtime.stats.sweeps.get(), 2);
        sweeping.abort();
    }
}
