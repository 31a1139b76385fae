//! Sweeps for overdue timers, as events may have been missed. Also runs the slow repair.
//!
//! The slow repair finds entries that contradict each other, such as records that the index has lost. A deleted key, a
//! restored backup or an eviction can cause these. The faults of the protocol's model (`tests/protocol`) cannot.

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

/// The interval while heartbeats arrive. Wake-ups announce new timers, and sweeps only catch missed ones.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// The interval while no heartbeats arrive, and only sweeps find new timers.
const SWEEP_INTERVAL_WITHOUT_EVENTS: Duration = Duration::from_secs(1);
/// The intervals with `save_requests`.
const SAVING_SWEEP_INTERVAL: Duration = Duration::from_secs(20);
const SAVING_SWEEP_INTERVAL_WITHOUT_EVENTS: Duration = Duration::from_secs(15);

/// Sweeps all partitions of one server.
pub(crate) struct Sweeper {
    runtime: Arc<Runtime>,
    node: Arc<NodeState>,
    /// True while events arrive. Each publication, even of an unchanged value, requests a sweep.
    events_flowing: watch::Receiver<bool>,
}

impl Sweeper {
    pub(crate) fn new(runtime: Arc<Runtime>, node: Arc<NodeState>) -> Self {
        let events_flowing = node.events_flowing.subscribe();
        Self { runtime, node, events_flowing }
    }

    /// Sweeps until it is dropped.
    pub(crate) async fn run(mut self) {
        let mut rounds = self.runtime.client.rounds();
        loop {
            // `borrow` does not mark the value as seen, so a publication during a sweep causes the next sweep.
            let (usual, few) = if *self.events_flowing.borrow() {
                (SWEEP_INTERVAL, SAVING_SWEEP_INTERVAL)
            } else {
                (SWEEP_INTERVAL_WITHOUT_EVENTS, SAVING_SWEEP_INTERVAL_WITHOUT_EVENTS)
            };
            let wait = rounds.pace(usual, few);
            tokio::select! {
                biased;
                _ = self.events_flowing.changed() => {}
                () = rounds.next(Instant::now() + wait, wait) => {}
            }
            rounds.begin();
            if let Err(error) = self.tick().await {
                self.runtime.stats.sweep_errors.add(1);
                debug!(%error, "sweep failed");
            }
        }
    }

    /// Sweeps once. Wakes the claimers of partitions with due timers, and passes the next deadline to those of the
    /// others.
    pub(crate) async fn tick(&self) -> Result<()> {
        self.runtime.stats.sweeps.add(1);
        let partitions = self.node.assignment.borrow().partitions.clone();
        let names: Vec<_> =
            partitions.iter().map(|partition| self.runtime.partitions[*partition].names.clone()).collect();
        let sent = Instant::now();
        let mut worst = Ok(());
        for (partition, answer) in partitions.into_iter().zip(self.runtime.client.store.heads(&names).await) {
            match answer {
                Ok((stamp, heads)) => self.apply_heads(partition, sent, stamp, heads),
                Err(error) => worst = Err(error),
            }
        }
        worst
    }

    /// Handles the earliest deadlines of a partition's indexes, which a call at `sent` has read.
    fn apply_heads(&self, partition: usize, sent: Instant, stamp: ServerTime, heads: Heads) {
        let partition = &self.runtime.partitions[partition];
        partition.health.note_overdue(stamp.ms(), heads.due);
        // While no timers are claimed for hours, only this shows that the server's clock was set forward.
        partition.clock.update(sent, ClockReading::now(stamp));
        match heads.due {
            Some(ms) if ms <= stamp.ms() => partition.due_wakeup.request(Instant::now(), LapseSource::Sweep),
            Some(ms) => partition.due_wakeup.announce_deadline(ms),
            None => {}
        }
        if let Some(ms) = heads.quarantine {
            partition.quarantine_wakeup.announce_deadline(ms);
        }
    }
}

/// The approximate number of entries that one step of the slow repair checks. At one step in 5 s, a million records take
/// seven hours, at a negligible load.
const ENTRIES_PER_STEP: usize = 200;
/// The pause after a step that has checked `ENTRIES_PER_STEP` entries or more. After fewer, it is shorter in proportion.
const REPAIR_INTERVAL: Duration = Duration::from_secs(5);
/// The maximum time of a round through all partitions if they are empty.
const MAX_EMPTY_ROUND: Duration = Duration::from_secs(300);
/// The pause between two steps with `save_requests`.
const SAVING_REPAIR_INTERVAL: Duration = Duration::from_secs(30);
/// The pause after a step that has repaired entries, as more entries may need repair.
const PAUSE_AFTER_REPAIR: Duration = Duration::from_millis(100);

const REPAIR_TARGETS: [RepairTarget; 6] = [
    RepairTarget::Records,
    RepairTarget::States,
    RepairTarget::Next,
    RepairTarget::Tried,
    RepairTarget::Slots,
    RepairTarget::Tombstones,
];

/// Repairs all partitions in rounds, until it is dropped.
pub(crate) async fn repair(runtime: Arc<Runtime>) {
    let steps = u32::try_from(runtime.partitions.len() * REPAIR_TARGETS.len()).unwrap_or(u32::MAX);
    let mut rounds = runtime.client.rounds();
    let pace = RepairPace {
        at_least: rounds.pace((MAX_EMPTY_ROUND / steps.max(1)).min(REPAIR_INTERVAL), SAVING_REPAIR_INTERVAL),
        at_most: rounds.pace(REPAIR_INTERVAL, SAVING_REPAIR_INTERVAL),
    };
    let mut wait = pace.at_most;
    loop {
        rounds.next(Instant::now() + wait, pace.at_most).await;
        rounds.begin();
        wait = Duration::ZERO;
        for partition in &runtime.partitions {
            for what in REPAIR_TARGETS {
                wait = repair_target(partition, what, wait, pace).await;
            }
        }
        if wait == PAUSE_AFTER_REPAIR {
            // In virtual time, the next round then runs without activity, too, as more entries may need repair.
            rounds = runtime.client.rounds();
        }
    }
}

/// The bounds of the pause after a step.
#[derive(Clone, Copy, Debug)]
struct RepairPace {
    at_least: Duration,
    at_most: Duration,
}

impl RepairPace {
    /// Returns the pause after a step that has checked this many entries.
    fn after(self, looked_at: u64) -> Duration {
        REPAIR_INTERVAL.mul_f64(looked_at as f64 / ENTRIES_PER_STEP as f64).clamp(self.at_least, self.at_most)
    }
}

/// Repairs one kind of entries of a partition, with a pause before each step. Returns the pause before the next kind.
async fn repair_target(
    partition: &Partition,
    what: RepairTarget,
    mut wait: Duration,
    pace: RepairPace,
) -> Duration {
    let topic = &partition.topic;
    let mut step =
        RepairStep { what, cursor: 0, count: ENTRIES_PER_STEP, lease_ms: ms_ceil(topic.config.lease) };
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
            warn!(?topic, count = reply.repaired, scan = ?what, "entries were repaired");
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
    async fn a_notice_during_a_sweep_prompts_the_next() {
        let bed = Rig::new();
        let topic = Topic::<u32>::new("a:{id}").unwrap();
        let handler = |_: Lapse<u32>| std::future::ready(Ok::<_, Failure>(Done));
        let runtime = Listener::builder(bed.client()).on(topic, handler).build().unwrap().runtime;
        let node = NodeState::of(&runtime);
        let sweeper = Sweeper::new(runtime.clone(), node.clone());
        let sweeping = tokio::spawn(sweeper.run());
        node.events_flowing.send_replace(true);
        tokio::task::yield_now().await;
        assert_eq!(runtime.stats.sweeps.get(), 1, "the sweep is in flight");
        node.events_flowing.send_replace(true);
        tokio::time::sleep(SWEEP_INTERVAL_WITHOUT_EVENTS).await;
        assert_eq!(runtime.stats.sweeps.get(), 2);
        sweeping.abort();
    }
}
