//! What befalls servers of several.

mod crash;
mod failover;
mod kill;
mod line;
mod moving;
mod scripts;
mod stop;

use super::Stage;
use crate::fault::Interruption;

/// What befalls the owner of a partition. Times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardFault {
    /// SIGKILL. Another takes its place, and so much later it is started again.
    Kill {
        /// Whose owner.
        partition: u32,
        /// How much later.
        restart_after: u64,
    },
    /// SIGKILL, and it is started again at once: nobody takes its place. It has what it had written to disk.
    Crash {
        /// Whose owner.
        partition: u32,
    },
    /// SIGSTOP, and SIGCONT so much later; another has taken its place by then.
    Stop {
        /// Whose owner.
        partition: u32,
        /// How much later.
        ms: u64,
    },
    /// The same for less time than others wait.
    Freeze {
        /// Whose owner.
        partition: u32,
        /// How much later.
        ms: u64,
    },
    /// A replica takes its place: in a cluster with its consent.
    Failover {
        /// Whose owner.
        partition: u32,
    },
    /// So many slots move one by one, those of partitions first.
    Move {
        /// How many.
        slots: usize,
    },
    /// All scripts are forgotten on all servers.
    ForgetScripts,
}

/// What befalls the lines of all to one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeLineFault {
    /// Which server, modulo how many there are.
    pub whose: u8,
    /// What befalls its lines.
    pub what: Interruption,
}

impl ShardFault {
    /// Makes it happen, waits until all is well again, and puts it on record.
    pub async fn strike(self, stage: &Stage) {
        stage.say(&format!("{self:?}"));
        match self {
            Self::Kill { partition, restart_after } => kill::strike(stage, partition, restart_after).await,
            Self::Crash { partition } => crash::strike(stage, partition).await,
            Self::Stop { partition, ms } => stop::strike(stage, partition, ms).await,
            Self::Freeze { partition, ms } => stop::freeze(stage, partition, ms).await,
            Self::Failover { partition } => failover::strike(stage, partition).await,
            Self::Move { slots } => moving::strike(stage, slots).await,
            Self::ForgetScripts => scripts::strike(stage).await,
        }
        stage.group.wait_until_ok().await;
    }
}
