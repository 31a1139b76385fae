//! Calls about whole partitions: create, read the heads of indexes, pause, repair, close and destroy.

use bytes::Bytes;
use keylapse_connection::cmd;

use crate::connection::{DESTROYING_ADVICE, REPARTITIONING_ADVICE};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{DestroyId, SlotId};
use crate::names::{self, DESTROYING, MAX_PARTITIONS, REPARTITIONING, WIRE_VERSION, tag_of};
use crate::run::{ScriptCall, number};
use crate::time::ServerTime;
use crate::{Heads, PartitionNames, Reply, Store, scripts};

/// The maximum number of partitions whose heads one call reads.
const MAX_PEEKED: usize = 250;

/// The parameters of a step of the slow repair.
#[derive(Clone, Debug)]
pub struct RepairStep {
    /// The target to scan.
    pub what: RepairTarget,
    /// The cursor that the last step returned; 0 to begin.
    pub cursor: u64,
    /// The rough number of entries to examine.
    pub count: usize,
    /// The lease that a claimed record without an index entry gets, in ms.
    pub lease_ms: u64,
}

/// The target of the slow repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairTarget {
    /// Records without an index entry.
    Records,
    /// States without a record, and tried timers that `tried` lacks.
    States,
    /// Queued armings whose timer is missing.
    Next,
    /// Entries of `tried` for timers that were not tried.
    Tried,
    /// Claimers whose last claim is a day old.
    Slots,
    /// Tombstones, journal entries and watches that are over. Their removal is counted, but is no repair.
    Tombstones,
}

impl RepairTarget {
    /// Returns the name of the target in repair.lua.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Records => "timers",
            Self::States => "timer_states",
            Self::Next => "queued",
            Self::Tried => "tried",
            Self::Slots => "claimers",
            Self::Tombstones => "tombstones",
        }
    }
}

/// The result of a step of the slow repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// The cursor of the next step; 0 at the end.
    pub cursor: u64,
    /// The number of repaired entries.
    pub repaired: u64,
    /// The number of examined entries.
    pub looked_at: u64,
}

impl Store {
    /// Creates the partition's meta if it is missing, after that of partition 0. This refuses a producer that has another
    /// number of partitions.
    pub(super) async fn ensure_partition(&self, at: &PartitionNames) -> Result<()> {
        if at.index != 0 {
            self.init(&PartitionNames::new(&at.namespace, &at.topic, 0, at.partitions, at.attached)).await?;
        }
        self.init(at).await
    }

    /// Creates a missing partition, and logs if it existed before.
    pub(crate) async fn recreate_partition(&self, at: &PartitionNames, error: &Error) -> Result<()> {
        let was_seen = self.was_partition_seen(at);
        self.ensure_partition(at).await?;
        if was_seen {
            self.warn_partition_recreated(at, error);
        }
        Ok(())
    }

    /// Creates the partition's meta if it is missing.
    ///
    /// # Errors
    /// If an existing meta has another version, kind, or number of partitions.
    pub(super) async fn init(&self, at: &PartitionNames) -> Result<()> {
        let mut call = self.call_with(&scripts::INIT, &[at.key("meta")]);
        let answer = call.arg(WIRE_VERSION).arg(at.partitions).arg(at.kind()).run_once().await;
        let mut reply = Reply::new("init", self.explain_wrong_type(at, answer).await?)?;
        let (version, of, kind) = (reply.bytes()?, reply.int()?, reply.bytes()?);
        if version == DESTROYING.as_bytes() {
            let message = format!("topic {} is being destroyed{DESTROYING_ADVICE}", at.topic);
            return Err(Error::new(ErrorKind::Destroying, message));
        }
        if version == REPARTITIONING.as_bytes() {
            let message = format!("topic {} is being repartitioned{REPARTITIONING_ADVICE}", at.topic);
            return Err(Error::new(ErrorKind::Repartitioning, message));
        }
        let version = number(&version).ok_or_else(|| reply.unexpected())?;
        if version != u64::from(WIRE_VERSION) {
            let (than, advice) = if version < u64::from(WIRE_VERSION) {
                (
                    "older",
                    "stop the programs that use it and delete its names, or give this program another namespace",
                )
            } else {
                ("newer", "upgrade this program, or give it another namespace")
            };
            let message = format!(
                "{} was made by wire version {version}, {than} than this library's {WIRE_VERSION}: {advice}",
                at.key("meta")
            );
            return Err(Error::new(ErrorKind::WireVersion, message));
        }
        if of != u64::from(at.partitions) {
            let message = format!(
                "topic {} has {of} partitions in Redis, but {} in this program: start this program with the topic's \
                 `.partitions({of})`",
                at.topic, at.partitions
            );
            return Err(Error::new(ErrorKind::Partitions, message));
        }
        at.check_kind(&kind)?;
        self.mark_partition_seen(at);
        Ok(())
    }

    /// Reads the earliest scores of each partition, with the time of its server. This is a cheap call.
    pub async fn heads(&self, partitions: &[PartitionNames]) -> Vec<Result<(ServerTime, Heads)>> {
        if self.0.topology.is_cluster() {
            return self.heads_one_by_one(partitions).await;
        }
        match self.peek(partitions).await {
            Ok((stamp, heads)) => heads.into_iter().map(|heads| Ok((stamp, heads))).collect(),
            // A proxy may have several shards behind one address.
            Err(error) if error.code() == Some("CROSSSLOT") => self.heads_one_by_one(partitions).await,
            Err(error) => vec![Err(error); partitions.len()],
        }
    }

    async fn heads_one_by_one(&self, partitions: &[PartitionNames]) -> Vec<Result<(ServerTime, Heads)>> {
        let calls: Vec<_> = partitions.iter().map(|at| self.peek_call(std::slice::from_ref(at))).collect();
        let read = |answer| {
            let (stamp, heads) = read_peeked(Reply::new(scripts::PEEK.name, answer?)?.stamped()?)?;
            Ok((stamp, heads.into_iter().next().unwrap_or_default()))
        };
        ScriptCall::run_all(&calls).await.into_iter().map(read).collect()
    }

    /// Checks that the servers answer. In a Redis Cluster one primary that answers is enough.
    pub async fn reach(&self, namespace: &str) -> Result<()> {
        let key = names::listeners(namespace);
        if !self.0.topology.is_cluster() {
            return match self.time_of(&key).await {
                // A connection that was idle may just have been closed, so try once more.
                Err(error) if error.kind() == ErrorKind::Unreachable && error.maybe_done() => {
                    self.time_of(&key).await.map(drop)
                }
                Err(error) => Err(self.0.topology.explained(error).await),
                Ok(_) => Ok(()),
            };
        }
        let mut refusal = Ok(());
        for slot in self.0.topology.slots().await? {
            match self.time_of(&names::canary(namespace, tag_of(slot))).await {
                Ok(_) => return Ok(()),
                Err(error) => refusal = Err(error),
            }
        }
        refusal
    }

    /// Returns the time of the server of this key, which must be a name of keylapse. The script names the key, because some
    /// proxies choose a server by it.
    pub async fn time_of(&self, key: &str) -> Result<ServerTime> {
        Ok(self.call_with(&scripts::PEEK, &[key]).reply().await?.stamp)
    }

    /// Reads the earliest scores of partitions of one server, and its time. Without partitions it reads only the time.
    pub async fn peek(&self, partitions: &[PartitionNames]) -> Result<(ServerTime, Vec<Heads>)> {
        let (first, others) = partitions.split_at(partitions.len().min(MAX_PEEKED));
        let (stamp, mut heads) = self.peek_at(first).await?;
        for some in others.chunks(MAX_PEEKED) {
            // The first timestamp is the earliest, so it is a lower bound for all.
            heads.extend(self.peek_at(some).await?.1);
        }
        Ok((stamp, heads))
    }

    async fn peek_at(&self, partitions: &[PartitionNames]) -> Result<(ServerTime, Vec<Heads>)> {
        read_peeked(self.peek_call(partitions).reply().await?)
    }

    fn peek_call(&self, partitions: &[PartitionNames]) -> ScriptCall<'_> {
        let indexes: Vec<_> =
            partitions.iter().flat_map(|at| [at.key("due"), at.key("quarantine")]).collect();
        self.call_with(&scripts::PEEK, &indexes)
    }

    /// Wakes the followers, because more timers are due than this listener can run.
    pub async fn wake_followers(&self, at: &PartitionNames) -> Result<()> {
        let mut reply = self.call(&scripts::WAKE_FOLLOWERS, at).arg("").reply().await?;
        self.read_wake_up_error(at, &mut reply).map(drop)
    }

    /// Pauses a partition with a reason, or resumes it. Returns the previous reason.
    pub async fn pause(&self, at: &PartitionNames, reason: Option<&str>) -> Result<Option<String>> {
        let mut reply = self.call(&scripts::PAUSE, at).arg(reason.unwrap_or_default()).reply().await?;
        let before = reply.maybe_text()?;
        self.read_wake_up_error(at, &mut reply)?;
        Ok(before)
    }

    /// Runs one step of the slow repair.
    pub async fn repair(&self, at: &PartitionNames, step: RepairStep) -> Result<Repaired> {
        let mut call = self.call(&scripts::REPAIR, at);
        call.arg(step.what.as_str()).arg(step.cursor).arg(step.count).arg(step.lease_ms);
        let mut reply = call.reply().await?;
        Ok(Repaired { cursor: reply.int()?, repaired: reply.int()?, looked_at: reply.int()? })
    }

    /// Removes the entry of a claimer that stops. Wakes the followers if it was the last claimer or the standby.
    pub async fn release_claimer(&self, at: &PartitionNames, slot: SlotId) -> Result<()> {
        let mut reply = self.call(&scripts::WAKE_FOLLOWERS, at).arg(slot.as_bytes()).reply().await?;
        self.read_wake_up_error(at, &mut reply).map(drop)
    }
}

/// Reads the heads of partitions, and the time of their server.
///
/// # Errors
/// If the reply has another format.
pub fn read_peeked(mut reply: Reply) -> Result<(ServerTime, Vec<Heads>)> {
    Ok((reply.stamp, reply.each(Heads::read)?))
}

/// How to close a partition, or open it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseMode {
    /// Change nothing.
    Ask,
    /// Close the partition if it holds no timers and no tracked keys.
    Empty,
    /// Close the partition if it holds no timers and no dead letters. It may hold tracked keys.
    Detached,
    /// Close the partition with its contents, under this ID. Partition 0 keeps the ID that it has.
    ByForce(DestroyId),
    /// Open the partition again if it is closed under this ID, or without an ID.
    Open(Option<DestroyId>),
}

/// The contents of a partition, in numbers, and whether it is closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// True if the partition is closed now.
    pub closed: bool,
    /// The ID under which it was closed by force.
    pub forced: Option<DestroyId>,
    /// The number of timers.
    pub timers: u64,
    /// The number of tracked keys.
    pub tracked: u64,
    /// The number of dead letters.
    pub letters: u64,
    /// The maximum number of partitions that the topic has had, or 0 if the number has never changed.
    pub most: u32,
}

/// The result of a step that destroys a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DestroyStep {
    /// The partition does not exist.
    Gone,
    /// The partition is open, and nothing was done.
    Open,
    /// The partition is closed. The timers to remove next follow, with deadlines in ms for those that wait.
    Closed(Vec<(Bytes, Option<u64>)>),
}

impl Store {
    /// Closes a partition, or opens it again. Returns its contents.
    pub async fn close(&self, at: &PartitionNames, how: CloseMode) -> Result<Holdings> {
        let (how, id) = match how {
            CloseMode::Ask => ("ask", None),
            CloseMode::Empty => ("close", None),
            CloseMode::Detached => ("detach", None),
            CloseMode::ByForce(id) => (if at.index == 0 { "force_or_join" } else { "force" }, Some(id)),
            CloseMode::Open(id) => ("open", id),
        };
        let mut call = self.bare_call(&scripts::CLOSE_PARTITION, at);
        call.arg(WIRE_VERSION).arg(at.partitions).arg(how).arg(at.kind());
        call.arg(id.as_ref().map_or(&[][..], |id| id.as_bytes()));
        let mut reply = call.plain_reply().await?;
        let (closed, forced) = (reply.int()? == 1, DestroyId::from_bytes(&reply.bytes()?));
        at.check_kind(&reply.bytes()?)?;
        let (timers, tracked, letters) = (reply.int()?, reply.int()?, reply.int()?);
        let most = u32::try_from(reply.int()?).map_or(MAX_PARTITIONS, |most| most.min(MAX_PARTITIONS));
        Ok(Holdings { closed, forced, timers, tracked, letters, most })
    }

    /// Removes these timers of a closed partition, and returns up to `most` others.
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

    /// Removes everything that is left of a closed partition.
    pub async fn end(&self, at: &PartitionNames) -> Result<DestroyStep> {
        self.destroy(at, &[], 0).await
    }

    /// Checks, before a partition is closed, the right to call UNLINK. Only [`end`](Self::end) needs it.
    pub async fn may_unlink(&self, at: &PartitionNames) -> Result<()> {
        // This is the name of a channel, so there is no such key.
        self.send("destroying", at.wake.as_bytes(), cmd("UNLINK").arg(&at.wake)).await.map(drop)
    }
}
