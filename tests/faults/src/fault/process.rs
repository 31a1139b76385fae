//! What befalls processes.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use rustix::process::Signal;
use tokio::time::sleep;

use crate::harness::{Actor, Troupe};

/// What befalls a process. The number chooses which, modulo how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessFault {
    /// SIGKILL.
    KillListener(u8),
    /// SIGKILL.
    KillProducer(u8),
    /// SIGSTOP, and SIGCONT so many milliseconds later.
    StopListener(u8, u64),
    /// SIGTERM: it hands over, and a new one takes its place.
    ReplaceListener(u8),
    /// Its process drops the listener and runs another.
    DropListener(u8),
    /// The threads of its handlers are blocked for a lease, so that their runtime polls nothing. Nobody loses a lease by that.
    BlockListener(u8),
}

impl ProcessFault {
    /// Any of them; none lasts much longer than two leases.
    pub(crate) fn any(random: &mut StdRng, lease_ms: u64) -> Self {
        match random.random_range(0..12) {
            0..4 => Self::KillListener(random.random()),
            4 => Self::KillProducer(random.random()),
            5..8 => Self::StopListener(random.random(), random.random_range(50..lease_ms * 2)),
            8..10 => Self::ReplaceListener(random.random()),
            10 => Self::DropListener(random.random()),
            _ => Self::BlockListener(random.random()),
        }
    }

    /// Makes it happen, and puts it on record.
    pub async fn strike(self, troupe: &Troupe) {
        let since = crate::clock::now();
        let actor = self.target(troupe);
        match self {
            Self::KillListener(_) | Self::KillProducer(_) => actor.signal(Signal::KILL).await,
            Self::ReplaceListener(_) => actor.signal(Signal::TERM).await,
            Self::DropListener(_) => actor.signal(Signal::USR1).await,
            Self::BlockListener(_) => actor.signal(Signal::USR2).await,
            Self::StopListener(_, ms) => {
                actor.signal(Signal::STOP).await;
                sleep(Duration::from_millis(ms)).await;
                actor.signal(Signal::CONT).await;
            }
        }
        let is_outage = matches!(self, Self::StopListener(..));
        troupe.record_fault(since, Some(actor.name()), &self, is_outage);
    }

    fn target(self, troupe: &Troupe) -> &Actor {
        match self {
            Self::KillListener(which)
            | Self::StopListener(which, _)
            | Self::ReplaceListener(which)
            | Self::DropListener(which)
            | Self::BlockListener(which) => troupe.listener(which),
            Self::KillProducer(which) => troupe.producer(which),
        }
    }
}
