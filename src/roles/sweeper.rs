//! Looks for what is overdue, whatever was or was not heard.
//!
//! The slow repair finds records that the index has lost. No fault in our model leaves them behind; a deleted key, a
//! restored backup or an evicted index does.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::Result;
use crate::lapse::LapseSource;
use crate::log::{debug, warn};
use crate::runtime::{NodeState, Partition, Runtime};
use crate::time::{ClockReading, ServerTime, ms_ceil};
use crate::wire::{Heads, RepairStep, RepairTarget};

/// While a canary is heard, wake-ups tell of new work, and the sweep is a second line.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// While none is heard, it is what finds new work.
const SWEEP_INTERVAL_WITHOUT_EVENTS: Duration = Duration::from_secs(1);
/// The same where requests are saved.
const SAVING_SWEEP_INTERVAL: Duration = Duration::from_secs(20);
const SAVING_SWEEP_INTERVAL_WITHOUT_EVENTS: Duration = Duration::from_secs(15);

/// Peeks at every partition of one server.
pub(crate) struct Sweeper {
    runtime: Arc<Runtime>,
    node: Arc<NodeState>,
    /// Whether events flow. Whenever that is said, something may have been missed before.
    calm: watch::Receiver<bool>,
}

impl Sweeper {
    pub(crate) fn new(runtime: Arc<Runtime>, node: Arc<NodeState>) -> Self {
        let calm = node.events_flowing.subscribe();
        Self { runtime, node, calm }
    }

    /// Until it is dropped.
    pub(crate) async fn run(mut self) {
        let mut rounds = self.runtime.client.rounds();
        loop {
            // Not taken as heard: what is said during a sweep leads to the next.
            let (usual, few) = if *self.calm.borrow() {
                (SWEEP_INTERVAL, SAVING_SWEEP_INTERVAL)
            } else {
                (SWEEP_INTERVAL_WITHOUT_EVENTS, SAVING_SWEEP_INTERVAL_WITHOUT_EVENTS)
            };
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
        partition.clock.read(sent, ClockReading::now(stamp));
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

/// Entries that are looked at in a step, roughly, and what they cost: for the whole listener 200 every 5 s. A
/// million records take it seven hours, and cost nothing that anybody would notice.
const ENTRIES: usize = 200;
const REPAIR_INTERVAL: Duration = Duration::from_secs(5);
/// Where there is nothing to look at, a round through all partitions takes no longer than this.
const ROUND: Duration = Duration::from_secs(300);
/// Between two steps where requests are saved.
const SAVING_REPAIR_INTERVAL: Duration = Duration::from_secs(30);
/// Where something was out of order there may be more.
const PAUSE_AFTER_REPAIR: Duration = Duration::from_millis(100);

const SCANS: [RepairTarget; 6] = [
    RepairTarget::Records,
    RepairTarget::States,
    RepairTarget::Next,
    RepairTarget::Tried,
    RepairTarget::Slots,
    RepairTarget::Tombstones,
];

/// Goes through all partitions, over and over, until it is dropped.
pub(crate) async fn repair(runtime: Arc<Runtime>) {
    let steps = u32::try_from(runtime.partitions.len() * SCANS.len()).unwrap_or(u32::MAX);
    let mut rounds = runtime.client.rounds();
    let pace = RepairPace {
        at_least: rounds.pace((ROUND / steps.max(1)).min(REPAIR_INTERVAL), SAVING_REPAIR_INTERVAL),
        at_most: rounds.pace(REPAIR_INTERVAL, SAVING_REPAIR_INTERVAL),
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
        if wait == PAUSE_AFTER_REPAIR {
            rounds = runtime.client.rounds(); // there may be more: the next is made in any case
        }
    }
}

/// How long to wait after a step.
#[derive(Clone, Copy, Debug)]
struct RepairPace {
    at_least: Duration,
    at_most: Duration,
}

impl RepairPace {
    /// After a step that has looked at so many.
    fn after(self, looked_at: u64) -> Duration {
        REPAIR_INTERVAL.mul_f64(looked_at as f64 / ENTRIES as f64).clamp(self.at_least, self.at_most)
    }
}

/// Goes through one index, a step after each wait; how long to wait before the next.
async fn scan(partition: &Partition, what: RepairTarget, mut wait: Duration, pace: RepairPace) -> Duration {
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
        wait = if reply.repaired > 0 { PAUSE_AFTER_REPAIR } else { pace.after(reply.looked_at) };
        if what != RepairTarget::Tombstones {
            topic.stats.repaired.add_u64(reply.repaired);
        }
        if reply.repaired > 0 && !matches!(what, RepairTarget::Slots | RepairTarget::Tombstones) {
            warn!(?topic, count = reply.repaired, scan = ?what, "entries were put right");
        }
        if reply.cursor == 0 {
            return wait;
        }
        step.cursor = reply.cursor;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lapse::Lapse;
    use crate::listener::Listener;
    use crate::outcome::{Done, Failure};
    use crate::rig::Rig;
    use crate::topic::Topic;

    #[tokio::test(start_paused = true)]
    async fn what_is_said_during_a_sweep_leads_to_the_next() {
        let bed = Rig::new();
        let topic = Topic::<u32>::new("a:{id}").unwrap();
        let handler = |_: Lapse<u32>| std::future::ready(Ok::<_, Failure>(Done));
        let runtime = Listener::builder(bed.client()).on(topic, handler).build().unwrap().runtime;
        let node = NodeState::of(&runtime);
        let sweeper = Sweeper::new(runtime.clone(), node.clone());
        let sweeping = tokio::spawn(sweeper.run());
        node.events_flowing.send_replace(true);
        tokio::task::yield_now().await;
        assert_eq!(runtime.stats.sweeps.get(), 1, "it is on its way");
        node.events_flowing.send_replace(true);
        tokio::time::sleep(SWEEP_INTERVAL_WITHOUT_EVENTS).await;
        assert_eq!(runtime.stats.sweeps.get(), 2);
        sweeping.abort();
    }
}
