//! The end of a topic: its partitions are closed, emptied page by page, and ended.

use bytes::Bytes;
use keylapse_connection::cmd;

use crate::error::Result;
use crate::id::DestroyId;
use crate::names::{self, MAX_PARTITIONS, WIRE_VERSION};
use crate::{PartitionNames, Store, scripts};

/// What is done to a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// Nothing.
    Ask,
    /// It is closed, if nothing is armed.
    Empty,
    /// It is closed, if nothing is armed and no dead letter kept. Keys of others may be enrolled.
    Detached,
    /// It is closed whatever it holds, under this id; or of partition 0 under the one that stands there.
    ByForce(DestroyId),
    /// It is opened again, if it is closed under this id; or none.
    Open(Option<DestroyId>),
}

/// What was found in a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Whether it is closed now.
    pub closed: bool,
    /// Under which id by force.
    pub forced: Option<DestroyId>,
    /// How many timers it holds.
    pub timers: u64,
    /// How many keys of others are enrolled.
    pub enrolled: u64,
    /// How many dead letters it holds.
    pub letters: u64,
    /// The most partitions that the topic has had, where that was ever another number.
    pub most: u32,
}

/// What a step of taking a partition apart has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DestroyStep {
    /// There is no such partition.
    Gone,
    /// It is open, and nothing was done.
    Open,
    /// It is closed; timers that are to be removed next, and the deadlines of those that wait.
    Closed(Vec<(Bytes, Option<u64>)>),
}

impl Store {
    /// Closes a partition, or opens it again.
    pub async fn close(&self, at: &PartitionNames, how: Close) -> Result<Holdings> {
        let (how, id) = match how {
            Close::Ask => ("ask", None),
            Close::Empty => ("close", None),
            Close::Detached => ("detach", None),
            Close::ByForce(id) => (if at.index == 0 { "first" } else { "force" }, Some(id)),
            Close::Open(id) => ("open", id),
        };
        let mut call = self.bare_call(&scripts::CLOSE, at);
        call.arg(WIRE_VERSION).arg(at.of).arg(how).arg(at.kind());
        call.arg(id.as_ref().map_or(&[][..], |id| id.as_bytes()));
        let mut reply = call.plain_reply().await?;
        let (closed, forced) = (reply.int()? == 1, DestroyId::from_bytes(&reply.bytes()?));
        at.check_kind(&reply.bytes()?)?;
        let (timers, enrolled, letters) = (reply.int()?, reply.int()?, reply.int()?);
        let most = u32::try_from(reply.int()?).map_or(MAX_PARTITIONS, |most| most.min(MAX_PARTITIONS));
        Ok(Holdings { closed, forced, timers, enrolled, letters, most })
    }

    /// Removes these timers of a closed partition, and names up to `most` others.
    pub async fn destroy(&self, at: &PartitionNames, gone: &[Bytes], most: usize) -> Result<DestroyStep> {
        let mut call = self.bare_call(&scripts::DESTROY, at);
        call.arg(&at.wake).arg(most);
        for key in gone {
            call.arg(&key[..]);
        }
        let mut reply = call.plain_reply().await?;
        Ok(match reply.int()? {
            0 => DestroyStep::Gone,
            1 => DestroyStep::Closed(reply.each(|reply| Ok((reply.bytes()?, reply.maybe_int()?)))?),
            2 => DestroyStep::Open,
            _ => return Err(reply.unexpected()),
        })
    }

    /// Removes all that is left of a closed partition.
    pub async fn end(&self, at: &PartitionNames) -> Result<DestroyStep> {
        self.destroy(at, &[], 0).await
    }

    /// Asks for the right that nothing but the end of a partition needs, before any is closed.
    pub async fn may_unlink(&self, at: &PartitionNames) -> Result<()> {
        // No key has that name: it is a channel's.
        self.send("destroying", at.wake.as_bytes(), cmd("UNLINK").arg(&at.wake)).await.map(drop)
    }

    /// Takes a topic from the list.
    pub async fn unlist(&self, at: &PartitionNames) -> Result<()> {
        let mut call = cmd("HDEL");
        let registry = names::registry(&at.namespace);
        call.arg(&registry).arg(&at.topic);
        self.send("taking the topic from the list", registry.as_bytes(), &call).await.map(drop)
    }
}
