//! The plan of a run with several servers, decided by its seed.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::ShardFault;
use super::fault::NodeLineFault;
use crate::fault::{LineFault, Planned, ProcessFault, lane};
use crate::job::Kind;

/// The faults of each lane. Those of servers follow each other, as one waits until all is well again: two primaries that
/// fall at once, or one that falls in the middle of a move, is for people to repair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardPlan {
    /// What befalls servers.
    pub servers: Vec<Planned<ShardFault>>,
    /// What befalls processes.
    pub process: Vec<Planned<ProcessFault>>,
    /// What befalls lines.
    pub line: Vec<Planned<NodeLineFault>>,
}

/// More than a lane can have in a run.
const MANY: usize = 1_000;
/// Lines fail for less than a node may be silent.
const LONGEST_MS: u64 = 1_000;

impl ShardPlan {
    /// Everything at once. The same seed gives the same plan.
    pub fn everything(seed: u64, lease: Duration) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        Self {
            servers: lane(&mut random, MANY, 300..2_000, ShardFault::any),
            process: lane(&mut random, MANY, 500..3_000, |random| ProcessFault::any(random, lease_ms)),
            line: lane(&mut random, MANY, 200..1_500, NodeLineFault::any),
        }
    }

    /// One fault of a server after the other, with a pause before each.
    pub fn of_servers(faults: &[ShardFault], pause: Duration) -> Self {
        let servers = faults.iter().map(|fault| Planned { after: pause, fault: *fault }).collect();
        Self { servers, ..Self::default() }
    }
}

impl ShardFault {
    /// Any of them.
    fn any(random: &mut StdRng) -> Self {
        let partition = random.random_range(0..Kind::Sharded.partitions());
        match random.random_range(0..10) {
            0..2 => Self::Kill { partition, restart_after: random.random_range(0..3_000) },
            2 => Self::Crash { partition },
            3 => Self::Stop { partition, ms: random.random_range(5_000..7_000) },
            4 => Self::Freeze { partition, ms: random.random_range(50..1_000) },
            5..7 => Self::Failover { partition },
            7..9 => Self::Move { slots: random.random_range(4..24) },
            _ => Self::ForgetScripts,
        }
    }
}

impl NodeLineFault {
    fn any(random: &mut StdRng) -> Self {
        let LineFault { whose, what } = LineFault::any(random, LONGEST_MS * 2 / 3);
        Self { whose, what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_plan() {
        let lease = Duration::from_secs(4);
        assert_eq!(ShardPlan::everything(1, lease), ShardPlan::everything(1, lease));
        assert_ne!(ShardPlan::everything(1, lease), ShardPlan::everything(2, lease));
    }
}
