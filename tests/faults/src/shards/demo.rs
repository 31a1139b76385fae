//! What the demos show.

use std::path::Path;
use std::time::Duration;

use keylapse_testing::{LocalCluster, SentinelGroup};

use super::run::{FLAGS, SERVES_THE_REST, run, shard_cast};
use super::{Group, Outcome, ShardFault, ShardPlan, Stage};
use crate::harness::Cast;

/// How much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// All, in less than 90 s.
    Whole,
    /// What the gate has time for.
    Quick,
}

/// Of a table of single faults.
const OF_A_TABLE: u64 = 800;

/// Of the demos: keys of other programs.
const KEYS_PER_SECOND: u32 = 100;

const CALM: Duration = Duration::from_secs(2);

impl Show {
    fn per_second(self) -> u64 {
        match self {
            Self::Whole => 800,
            Self::Quick => 200,
        }
    }

    fn of_cluster(self) -> Vec<ShardFault> {
        let kill = ShardFault::Kill { partition: 0, restart_after: 1_000 };
        match self {
            Self::Whole => vec![
                kill,
                ShardFault::Move { slots: 100 },
                ShardFault::Failover { partition: 1 },
                ShardFault::Stop { partition: 2, ms: 10_000 },
            ],
            Self::Quick => vec![kill, ShardFault::Move { slots: 20 }],
        }
    }

    fn of_sentinel(self) -> Vec<ShardFault> {
        let partition = 0;
        let kill = ShardFault::Kill { partition, restart_after: 1_000 };
        match self {
            Self::Whole => {
                vec![kill, ShardFault::Failover { partition }, ShardFault::Stop { partition, ms: 10_000 }]
            }
            Self::Quick => vec![kill],
        }
    }
}

/// Three primaries with a replica each.
///
/// # Panics
/// If something of the harness itself fails.
pub async fn cluster(show: Show, folder: &Path) -> Outcome {
    show.play(cluster_of_six().await, &show.of_cluster(), folder).await
}

async fn cluster_of_six() -> Group {
    let cluster = LocalCluster::builder().notifications(FLAGS).config(SERVES_THE_REST).start();
    Group::Cluster(cluster.await.expect("a cluster"))
}

/// A master with two replicas, and three sentinels.
///
/// # Panics
/// If something of the harness itself fails.
pub async fn sentinel(show: Show, folder: &Path) -> Outcome {
    show.play(master_and_two().await, &show.of_sentinel(), folder).await
}

async fn master_and_two() -> Group {
    let group = SentinelGroup::builder().notifications(FLAGS).start();
    Group::Sentinel(group.await.expect("servers and sentinels"))
}

/// One fault of a table: of a cluster, or where there are sentinels.
///
/// # Panics
/// If something of the harness itself fails.
pub async fn alone(fault: ShardFault, in_cluster: bool, folder: &Path) -> Outcome {
    let group = if in_cluster { cluster_of_six().await } else { master_and_two().await };
    play(&cast(&group, OF_A_TABLE), false, group, &[fault], folder).await
}

impl Show {
    async fn play(self, group: Group, faults: &[ShardFault], folder: &Path) -> Outcome {
        let cast = Cast { keys_per_second: KEYS_PER_SECOND, ..cast(&group, self.per_second()) };
        play(&cast, true, group, faults, folder).await
    }
}

fn cast(group: &Group, per_second: u64) -> Cast {
    // Of two replicas one would not do: until all have changed sides, it may be the one that is not promoted.
    let replicas = if matches!(group, Group::Cluster(_)) { 1 } else { 2 };
    shard_cast(per_second, replicas, 1)
}

async fn play(cast: &Cast, talks: bool, group: Group, faults: &[ShardFault], folder: &Path) -> Outcome {
    let stage = Stage::open(cast, group, Vec::new(), folder, talks).await;
    let (timers, keys) = (cast.per_second * cast.producers as u64, cast.keys_per_second);
    stage.say(&format!("{timers} timers a second, {keys} keys of other programs, two listeners"));
    run(cast, stage, ShardPlan::of_servers(faults, CALM), None, CALM, folder).await
}
