//! Producers' calls as scripts, each with ops of one kind: what a schedule has no word for, such as ids that are given and
//! repeats, is said here.

use bytes::Bytes;
use keylapse::{ArmResult, Rescheduled, Result};
use keylapse_connection::id::CancelId;
use keylapse_wire::names::PartitionNames;
use keylapse_wire::time::WireWhen;
use keylapse_wire::{CancelReply, NewTimer, Op, OpCall, OpFlags, OpReply, Store};

/// A timer to withdraw.
#[derive(Clone, Debug)]
pub(crate) struct Cancel {
    pub key: Bytes,
    pub id: CancelId,
}

pub(crate) trait Produce {
    async fn call(&self, at: &PartitionNames, flags: OpFlags, ops: &[Op]) -> Result<Vec<Result<OpReply>>>;

    /// Creates or replaces timers.
    async fn arm(
        &self,
        at: &PartitionNames,
        flags: OpFlags,
        timers: &[NewTimer],
    ) -> Result<Vec<Result<ArmResult>>> {
        let ops: Vec<_> = timers.iter().cloned().map(Op::Arm).collect();
        let armed = |reply| match reply {
            OpReply::Armed(arming) => arming,
            other => panic!("an arm was answered {other:?}"),
        };
        Ok(self.call(at, flags, &ops).await?.into_iter().map(|reply| reply.map(armed)).collect())
    }

    /// Withdraws timers, and leaves trigger keys alone.
    async fn cancel(&self, at: &PartitionNames, timers: &[Cancel]) -> Result<Vec<CancelReply>> {
        let ops: Vec<_> = timers.iter().cloned().map(|Cancel { key, id }| Op::Cancel { key, id }).collect();
        let cancelled = |reply| match reply {
            OpReply::Cancelled(cancelled) => cancelled,
            other => panic!("a cancel was answered {other:?}"),
        };
        let replies = self.call(at, OpFlags::default(), &ops).await?;
        replies.into_iter().map(|reply| reply.map(cancelled)).collect()
    }

    /// Moves a waiting timer, and leaves its trigger key alone.
    async fn reschedule(&self, at: &PartitionNames, key: &[u8], when: WireWhen) -> Result<Rescheduled> {
        let op = Op::Reschedule { key: Bytes::copy_from_slice(key), when };
        match self.call(at, OpFlags::default(), &[op]).await?.remove(0)? {
            OpReply::Rescheduled(rescheduled) => Ok(rescheduled),
            other => panic!("a reschedule was answered {other:?}"),
        }
    }
}

impl Produce for Store {
    async fn call(&self, at: &PartitionNames, flags: OpFlags, ops: &[Op]) -> Result<Vec<Result<OpReply>>> {
        let call = OpCall { flags, ops: ops.iter().collect() };
        self.produce(at, &[call]).await.remove(0)
    }
}
