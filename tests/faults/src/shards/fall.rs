//! A primary that loses its place, and what becomes of what it had.

use std::time::Duration;

use futures::future::join_all;
use keylapse_testing::LocalNode;
use tokio::time::{Instant, sleep};

use super::{Stage, witness};
use crate::clock::{Micros, now};
use crate::ledger::{Entry, Held, Succession};

const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Longer than any replacement takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A primary that has fallen, or is about to.
#[derive(Debug)]
pub(super) struct Fall {
    pub(super) node: LocalNode,
    pub(super) partitions: Vec<u32>,
    pub(super) since: Micros,
    /// What those who may take its place had from it when it fell.
    heirs: Vec<(LocalNode, Held)>,
}

/// Who took its place, and when.
#[derive(Debug)]
pub(super) struct Heir {
    pub(super) node: LocalNode,
    sole_until: Micros,
    promoted: Micros,
    held: Held,
}

impl Fall {
    /// Of the owner of a partition, from now on.
    pub(super) async fn of(stage: &Stage, partition: u32) -> Self {
        let node = stage.owner(partition).await;
        let partitions = stage.group.owned_by(&node).await;
        Self { node, partitions, since: now(), heirs: Vec::new() }
    }

    /// It falls now: what its replicas have is read before one of them may change it.
    pub(super) async fn falls(&mut self, stage: &Stage, strike: impl FnOnce(&LocalNode)) {
        let replicas = stage.group.replicas_of(&self.node).await;
        self.since = now();
        strike(&self.node);
        let all = replicas.into_iter().map(async |replica| {
            let held = witness::held(&replica, &self.node, &self.partitions).await?;
            Some((replica, held))
        });
        self.heirs = join_all(all).await.into_iter().flatten().collect();
    }

    /// Waits until another has its place.
    ///
    /// # Panics
    /// If nobody has within a minute.
    pub(super) async fn heir(&self, stage: &Stage) -> Heir {
        let (mut sole_until, until) = (self.since, Instant::now() + PATIENCE);
        loop {
            let looked = now();
            let owner = match self.partitions.first() {
                Some(first) => stage.group.owner(*first).await,
                None => panic!("{:?} had no partition", self.node),
            };
            if let Some(node) = owner.filter(|owner| *owner != self.node) {
                let held = self.held_by(&node).await;
                return Heir { node, sole_until, promoted: now(), held };
            }
            assert!(Instant::now() < until, "nobody has taken the place of {:?}", self.node);
            sole_until = looked;
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Returns the data that the heir had when the primary fell. If the harness could not read that in time, returns the data
    /// that the heir has now.
    async fn held_by(&self, heir: &LocalNode) -> Held {
        match self.heirs.iter().find(|(node, _)| node == heir) {
            Some((_, held)) => held.clone(),
            None => witness::held_now(heir, &self.partitions).await,
        }
    }

    /// Waits until the fallen one follows another, if it runs.
    ///
    /// # Panics
    /// If it does not within a minute.
    pub(super) async fn follows(&self, stage: &Stage) {
        let until = Instant::now() + PATIENCE;
        while self.node.is_running() && !stage.group.is_replica(&self.node).await {
            assert!(Instant::now() < until, "{:?} does not make way", self.node);
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Puts it on record: now nobody takes the old one for what it was.
    pub(super) fn record(&self, stage: &Stage, heir: Heir, is_orderly: bool) {
        let Heir { node: successor, sole_until, promoted, held } = heir;
        stage.troupe.ledger.write(Entry::Succession(Succession {
            partitions: self.partitions.clone(),
            node: self.node.port(),
            successor: successor.port(),
            is_orderly,
            since: self.since,
            sole_until,
            promoted,
            held,
        }));
    }
}

impl Heir {
    /// The old one has acknowledged until now, and what the new one has by now is not lost.
    pub(super) async fn has_shared_until_now(&mut self, partitions: &[u32]) {
        self.sole_until = now();
        self.held.and(witness::held_now(&self.node, partitions).await);
    }

    /// How long the place was empty.
    pub(super) fn after(&self, fall: &Fall) -> Duration {
        Duration::from_micros(self.promoted.saturating_sub(fall.since))
    }
}
