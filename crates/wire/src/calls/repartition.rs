//! Calls of a repartition: close each partition, move entries to other partitions, and open it with the new number.

use bytes::Bytes;

use crate::error::Result;
use crate::id::RepartitionId;
use crate::names::WIRE_VERSION;
use crate::{PartitionNames, Reply, Store, scripts};

/// A step of a repartition, which changes a partition's `meta`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepartitionStep<'a> {
    /// Change nothing.
    Ask,
    /// Pause the partition, so that nothing is claimed.
    Pause,
    /// Undo the pause of this caller.
    Resume,
    /// Close the partition, so that all other scripts refuse their calls.
    Close,
    /// Save why another partition was paused, and how many dead letters it had trimmed.
    Share {
        /// Why the other partition was paused, if it was.
        paused: Option<&'a str>,
        /// The index of the other partition.
        from: u32,
        /// How many dead letters it had trimmed.
        trimmed: u64,
    },
    /// Open the partition with the new number.
    Open,
    /// Undo what interrupted calls have left.
    Tidy,
}

/// The repartition that a step belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepartitionChange {
    /// The new number of partitions.
    pub to: u32,
    /// The ID of the caller.
    pub own: RepartitionId,
    /// The ID under which partition 0 is closed.
    pub id: RepartitionId,
}

/// The phase of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionPhase {
    /// The partition does not exist.
    Absent,
    /// Open, as usual.
    Open,
    /// Paused before it is closed: nothing is claimed.
    Paused,
    /// Closed: all scripts refuse their calls, except those of the repartition.
    Closed,
    /// The topic is being destroyed.
    Destroying,
}

/// The `meta` of a partition after a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionMeta {
    /// True if the step is done, by this call or before. A repeat of `Resume` returns false.
    pub done: bool,
    /// The phase.
    pub standing: PartitionPhase,
    /// The number of partitions.
    pub of: u32,
    /// The new number of partitions, or 0.
    pub to: u32,
    /// True if other programs write the topic's keys.
    pub attached: bool,
    /// The ID under which the partition is closed.
    pub id: Option<RepartitionId>,
    /// Why the partition was paused before the repartition.
    pub paused: Option<String>,
    /// The number of dead letters that were trimmed.
    pub trimmed: u64,
    /// The maximum number of partitions that the topic has had, or 0 if the number has never changed.
    pub most: u32,
    /// How long the partition has been closed, in ms.
    pub closed_ms: u64,
}

/// The names to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListTarget {
    /// The timers in `due`.
    Due,
    /// The timers in quarantine.
    Quarantine,
    /// All records.
    Records,
    /// All states.
    States,
    /// The queued armings.
    Next,
    /// The tombstones of the last three minutes, which repeated calls may need.
    Tombstones,
    /// The dead letters in the index `dead`.
    Dead,
    /// The dead letters in the hash `dead_letters`.
    Letters,
    /// The timers whose attempts have live leases.
    Running,
}

/// The entries to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MovedKind {
    /// Timers by their keys.
    Timers,
    /// Dead letters by their names.
    Letters,
    /// Tombstones.
    Tombstones,
}

/// An entry that moves, from one index or hash of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedEntry {
    /// The position of the index or hash among the keys of move_read.lua, from 1.
    pub place: u64,
    /// The name of the entry.
    pub name: Bytes,
    /// The score or value.
    pub value: Bytes,
}

impl RepartitionStep<'_> {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Close => "close",
            Self::Share { .. } => "share",
            Self::Open => "open",
            Self::Tidy => "clean_up",
        }
    }
}

impl ListTarget {
    /// Returns the name that list_names.lua takes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Due => "due",
            Self::Quarantine => "quarantine",
            Self::Records => "timers",
            Self::States => "timer_states",
            Self::Next => "queued",
            Self::Tombstones => "tombstones",
            Self::Dead => "dead",
            Self::Letters => "dead_letters",
            Self::Running => "running",
        }
    }
}

impl MovedKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Timers => "timers",
            Self::Letters => "dead_letters",
            Self::Tombstones => "tombstones",
        }
    }
}

impl Store {
    /// Runs a step on a partition, and returns its `meta`. `at` has the present number of partitions.
    pub async fn repartition_step(
        &self,
        at: &PartitionNames,
        change: RepartitionChange,
        how: RepartitionStep<'_>,
    ) -> Result<PartitionMeta> {
        let mut call = self.bare_call(&scripts::REPARTITION_STEP, at);
        call.arg(WIRE_VERSION)
            .arg(at.partitions)
            .arg(&at.wake)
            .arg(how.as_str())
            .arg(change.to)
            .arg(at.index);
        call.arg(change.own.as_bytes()).arg(change.id.as_bytes());
        if let RepartitionStep::Share { paused, from, trimmed } = how {
            call.arg(paused.unwrap_or_default()).arg(from).arg(trimmed);
        }
        let mut reply = call.plain_reply().await?;
        let done = reply.int()? == 1;
        let standing = match &reply.bytes()?[..] {
            b"none" => PartitionPhase::Absent,
            b"open" => PartitionPhase::Open,
            b"paused" => PartitionPhase::Paused,
            b"closed" => PartitionPhase::Closed,
            b"destroying" => PartitionPhase::Destroying,
            _ => return Err(reply.unexpected()),
        };
        Ok(PartitionMeta {
            done,
            standing,
            of: read_number(&mut reply)?,
            to: read_number(&mut reply)?,
            attached: reply.bytes()? == b"attached"[..],
            id: RepartitionId::from_bytes(&reply.bytes()?),
            paused: reply.maybe_text()?,
            trimmed: reply.int()?,
            most: read_number(&mut reply)?,
            closed_ms: reply.int()?,
        })
    }

    /// Returns the next cursor, which is 0 at the end, and a page of names.
    pub async fn names_in(
        &self,
        at: &PartitionNames,
        what: ListTarget,
        cursor: u64,
        count: usize,
    ) -> Result<(u64, Vec<Bytes>)> {
        let mut call = self.bare_call(&scripts::LIST_NAMES, at);
        call.arg(what.as_str()).arg(cursor).arg(count);
        let mut reply = call.plain_reply().await?;
        Ok((reply.int()?, reply.each(Reply::bytes)?))
    }

    /// Reads the entries of the first names, up to about `bytes`. Returns how many names were read, and their entries.
    pub async fn read_entries(
        &self,
        at: &PartitionNames,
        kind: MovedKind,
        names: &[Bytes],
        bytes: usize,
    ) -> Result<(usize, Vec<MovedEntry>)> {
        let mut call = self.bare_call(&scripts::MOVE_READ, at);
        call.arg(kind.as_str()).arg(bytes);
        names.iter().for_each(|name| {
            call.arg(&name[..]);
        });
        let mut reply = call.plain_reply().await?;
        let read = usize::try_from(reply.int()?).unwrap_or(usize::MAX).min(names.len());
        let entry = |reply: &mut Reply| {
            Ok(MovedEntry { place: reply.int()?, name: reply.bytes()?, value: reply.bytes()? })
        };
        Ok((read, reply.each(entry)?))
    }

    /// Writes entries. Returns false, and writes nothing, unless the partition is closed under this ID.
    pub async fn put_entries<'a>(
        &self,
        at: &PartitionNames,
        id: RepartitionId,
        entries: impl IntoIterator<Item = &'a MovedEntry>,
    ) -> Result<bool> {
        let mut call = self.bare_call(&scripts::MOVE_WRITE, at);
        call.arg(id.as_bytes());
        for MovedEntry { place, name, value } in entries {
            call.arg(place).arg(&name[..]).arg(&value[..]);
        }
        read_is_done(&call.run().await?)
    }

    /// Removes entries that have moved to another partition. Returns false, and removes nothing, unless the partition is
    /// closed under this ID.
    pub async fn delete_moved(
        &self,
        at: &PartitionNames,
        id: RepartitionId,
        kind: MovedKind,
        names: &[Bytes],
    ) -> Result<bool> {
        let mut call = self.bare_call(&scripts::MOVE_DELETE, at);
        call.arg(id.as_bytes()).arg(kind.as_str());
        names.iter().for_each(|name| {
            call.arg(&name[..]);
        });
        read_is_done(&call.run().await?)
    }
}

fn read_number(reply: &mut Reply) -> Result<u32> {
    u32::try_from(reply.int()?).map_err(|_| reply.unexpected())
}

fn read_is_done(answer: &keylapse_connection::Value) -> Result<bool> {
    match answer {
        keylapse_connection::Value::Int(code) => Ok(*code == 1),
        _ => Err(crate::run::unexpected("move_write")),
    }
}
