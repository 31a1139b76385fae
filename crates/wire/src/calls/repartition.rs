//! Another number of partitions: each is closed, gives up what belongs elsewhere, and is opened again.

use bytes::Bytes;

use crate::error::Result;
use crate::id::RepartitionId;
use crate::names::WIRE_VERSION;
use crate::{PartitionNames, Reply, Store, scripts};

/// What is asked of a partition's `meta`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepartitionStep<'a> {
    /// Nothing.
    Ask,
    /// That nothing is given out any more.
    Pause,
    /// That it is as before the caller has paused it.
    Resume,
    /// That all other scripts refuse.
    Close,
    /// That it knows why another was paused, and how many letters that had trimmed.
    Share {
        /// Why, if it was.
        paused: Option<&'a str>,
        /// The other's index.
        from: u32,
        /// So many.
        trimmed: u64,
    },
    /// That it has the new number, and is open.
    Open,
    /// That what calls have left that are over is taken back.
    Tidy,
}

/// Which change it is a step of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepartitionChange {
    /// How many partitions there will be.
    pub to: u32,
    /// Of whoever makes the call.
    pub own: RepartitionId,
    /// Under which partition 0 is closed.
    pub id: RepartitionId,
}

/// How a partition stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionPhase {
    /// There is none.
    Absent,
    /// As usual.
    Open,
    /// Nothing is given out, so that it can be closed.
    Paused,
    /// All scripts but those of the change refuse.
    Closed,
    /// Its topic is being destroyed.
    Destroying,
}

/// What a partition's `meta` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionMeta {
    /// Whether it stands as was asked.
    pub done: bool,
    /// How it stands.
    pub standing: PartitionPhase,
    /// How many partitions there are.
    pub of: u32,
    /// How many there will be.
    pub to: u32,
    /// Whether other programs write the topic's keys.
    pub attached: bool,
    /// Under which id it is closed.
    pub id: Option<RepartitionId>,
    /// Why it was paused before.
    pub paused: Option<String>,
    /// How many dead letters were trimmed.
    pub trimmed: u64,
    /// The most partitions that the topic has had.
    pub most: u32,
    /// For how long it has been closed, in ms.
    pub closed_ms: u64,
}

/// What is gone through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListTarget {
    /// The timers that wait.
    Due,
    /// Those in quarantine.
    Quarantine,
    /// All records.
    Records,
    /// All states.
    States,
    /// What is kept for after a timer.
    Next,
    /// Tombstones that a repeat may look for.
    Tombstones,
    /// Dead letters, in their order.
    Dead,
    /// Dead letters, in none.
    Letters,
    /// The timers whose attempts have live leases.
    Running,
}

/// What is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MovedKind {
    /// Timers, by their keys.
    Timers,
    /// Dead letters, by their names.
    Letters,
    /// Tombstones.
    Tombstones,
}

/// What a partition says of something at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedEntry {
    /// The place.
    pub place: u64,
    /// Of what.
    pub name: Bytes,
    /// What.
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
    /// Returns its name, as list.lua takes it.
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
    /// Takes a partition one step on. Its names say how many there are.
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
            of: number(&mut reply)?,
            to: number(&mut reply)?,
            attached: reply.bytes()? == b"attached"[..],
            id: RepartitionId::from_bytes(&reply.bytes()?),
            paused: reply.maybe_text()?,
            trimmed: reply.int()?,
            most: number(&mut reply)?,
            closed_ms: reply.int()?,
        })
    }

    /// A page of names, and where to go on; 0 at the end.
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

    /// All that is said of the first of these, up to so many bytes; and of how many.
    pub async fn read_entries(
        &self,
        at: &PartitionNames,
        cargo: MovedKind,
        names: &[Bytes],
        bytes: usize,
    ) -> Result<(usize, Vec<MovedEntry>)> {
        let mut call = self.bare_call(&scripts::MOVE_READ, at);
        call.arg(cargo.as_str()).arg(bytes);
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

    /// Writes them; whether the partition is closed under this id.
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
        answered(&call.run().await?)
    }

    /// Removes what has been written elsewhere; whether the partition is closed under this id.
    pub async fn delete_moved(
        &self,
        at: &PartitionNames,
        id: RepartitionId,
        cargo: MovedKind,
        names: &[Bytes],
    ) -> Result<bool> {
        let mut call = self.bare_call(&scripts::MOVE_DELETE, at);
        call.arg(id.as_bytes()).arg(cargo.as_str());
        names.iter().for_each(|name| {
            call.arg(&name[..]);
        });
        answered(&call.run().await?)
    }
}

fn number(reply: &mut Reply) -> Result<u32> {
    u32::try_from(reply.int()?).map_err(|_| reply.unexpected())
}

fn answered(answer: &keylapse_connection::Value) -> Result<bool> {
    match answer {
        keylapse_connection::Value::Int(code) => Ok(*code == 1),
        _ => Err(crate::run::unexpected("move_write")),
    }
}
