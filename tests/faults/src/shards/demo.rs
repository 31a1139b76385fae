//! What the demos show.

use std::path::Path;
use std::time::Duration;

use keylapse::testing::{Cluster, SentinelGroup};

use super::run::{run, shard_cast};
use super::{Group, Outcome, ShardFault, ShardPlan, Stage};

/// How much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// All, in less than 90 s.
    Whole,
    /// What the gate has time for.
    Quick,
}

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
    let cluster = Cluster::start().await.expect("a cluster");
    play(show, Group::Cluster(cluster), 1, &show.of_cluster(), folder).await
}

/// A master with two replicas, and three sentinels.
///
/// # Panics
/// If something of the harness itself fails.
pub async fn sentinel(show: Show, folder: &Path) -> Outcome {
    let group = SentinelGroup::start().await.expect("servers and sentinels");
    // One of two would not do: until all have changed sides, it may be the one that is not promoted.
    play(show, Group::Sentinel(group), 2, &show.of_sentinel(), folder).await
}

async fn play(show: Show, group: Group, replicas: u32, faults: &[ShardFault], folder: &Path) -> Outcome {
    let cast = shard_cast(show.per_second(), replicas, 1);
    let stage = Stage::open(&cast, group, Vec::new(), folder, true).await;
    stage.say(&format!("{} timers a second, two listeners", show.per_second()));
    run(&cast, stage, ShardPlan::of_servers(faults, CALM), None, CALM, folder).await
}
