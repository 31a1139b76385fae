//! Partitions as a whole: made, looked at for what is next, paused, repaired, closed and emptied.

use bytes::Bytes;
use keylapse_connection::cmd;

use crate::connection::{DESTROYING_ADVICE, REPARTITIONING_ADVICE};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{DestroyId, SlotId};
use crate::names::{self, DESTROYING, MAX_PARTITIONS, REPARTITIONING, WIRE_VERSION, tag_of};
use crate::run::{ScriptCall, number};
use crate::time::ServerTime;
use crate::{Heads, PartitionNames, Reply, Store, scripts};

/// Partitions that one call peeks at.
const PEEKED: usize = 250;

/// One step of the slow repair.
#[derive(Clone, Debug)]
pub struct RepairStep {
    /// What to scan.
    pub what: RepairTarget,
    /// Where the last step ended; 0 to begin.
    pub cursor: u64,
    /// How many entries to look at, roughly.
    pub count: usize,
    /// The lease that a held record without an index entry gets, in ms.
    pub lease_ms: u64,
}

/// What the slow repair scans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairTarget {
    /// Records without an index entry.
    Records,
    /// States without a record.
    States,
    /// Kept armings without a timer before them.
    Next,
    /// Timers that were tried and do not stand there as such, or stand there and were not.
    Tried,
    /// Claim slots of listeners that are gone.
    Slots,
    /// Tombstones past their age; no hash, and what goes is nothing that was amiss.
    Tombstones,
}

impl RepairTarget {
    /// Its name.
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

/// What one step of the slow repair did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// Where to go on; 0 at the end.
    pub cursor: u64,
    /// How many entries were put right.
    pub repaired: u64,
    /// How many were looked at.
    pub looked_at: u64,
}

impl Store {
    /// Creates the partition's meta, but never against partition 0: a producer
    /// with another number of partitions must not make a second truth.
    pub(super) async fn ensure_partition(&self, at: &PartitionNames) -> Result<()> {
        if at.index != 0 {
            self.init(&PartitionNames::new(&at.namespace, &at.topic, 0, at.partitions, at.attached)).await?;
        }
        self.init(at).await
    }

    /// The same of one that is not there.
    pub(crate) async fn recreate_partition(&self, at: &PartitionNames, error: &Error) -> Result<()> {
        let was_there = self.was_partition_seen(at);
        self.ensure_partition(at).await?;
        if was_there {
            self.warn_partition_recreated(at, error);
        }
        Ok(())
    }

    /// Creates the partition's meta; refused if there is one that says something else.
    pub(super) async fn init(&self, at: &PartitionNames) -> Result<()> {
        let mut call = self.call_with(&scripts::INIT, &[at.key("meta")]);
        let answer = call.arg(WIRE_VERSION).arg(at.partitions).arg(at.kind()).run_once().await;
        let mut reply = Reply::new("init", self.named(at, answer).await?)?;
        let (version, of, there) = (reply.bytes()?, reply.int()?, reply.bytes()?);
        if version == DESTROYING.as_bytes() {
            let message = format!("topic {} is being destroyed{DESTROYING_ADVICE}", at.topic);
            return Err(Error::new(ErrorKind::Destroying, message));
        }
        if version == REPARTITIONING.as_bytes() {
            let message =
                format!("topic {} gets another number of partitions{REPARTITIONING_ADVICE}", at.topic);
            return Err(Error::new(ErrorKind::Repartitioning, message));
        }
        let version = number(&version).ok_or_else(|| reply.unexpected())?;
        if version != u64::from(WIRE_VERSION) {
            let (than, advice) = if version < u64::from(WIRE_VERSION) {
                ("older", "stop what speaks it and remove its names, or give this program another namespace")
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
                "topic {} has {of} partitions in Redis, this program says {}; use the same number everywhere: \
                 start this program with the topic's `.partitions({of})`",
                at.topic, at.partitions
            );
            return Err(Error::new(ErrorKind::Partitions, message));
        }
        at.check_kind(&there)?;
        self.mark_partition_seen(at);
        Ok(())
    }

    /// The earliest scores of partitions, read cheaply, each with the time of its server.
    pub async fn heads(&self, partitions: &[PartitionNames]) -> Vec<Result<(ServerTime, Heads)>> {
        if self.0.topology.is_cluster() {
            return self.heads_one_by_one(partitions).await;
        }
        match self.peek(partitions).await {
            Ok((stamp, heads)) => heads.into_iter().map(|heads| Ok((stamp, heads))).collect(),
            // One address of several shards.
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

    /// Asks whether the servers can be used: of a cluster, whether any of its primaries can be.
    pub async fn reach(&self, namespace: &str) -> Result<()> {
        let key = names::listeners(namespace);
        if !self.0.topology.is_cluster() {
            return match self.time_of(&key).await {
                // Once more: a line that breaks again breaks at the call.
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

    /// The time of the server that holds this key, which is one of ours. A script that names no key does not get through
    /// proxies that choose a server by it.
    pub async fn time_of(&self, key: &str) -> Result<ServerTime> {
        Ok(self.call_with(&scripts::PEEK, &[key]).reply().await?.stamp)
    }

    /// The earliest scores of partitions of one server, and its time; of none, only the time.
    pub async fn peek(&self, partitions: &[PartitionNames]) -> Result<(ServerTime, Vec<Heads>)> {
        let (first, others) = partitions.split_at(partitions.len().min(PEEKED));
        let (stamp, mut heads) = self.peek_at(first).await?;
        for some in others.chunks(PEEKED) {
            // The first stamp is the earliest, so it is true of all.
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

    /// Tells other listeners that more is due than this one can run.
    pub async fn wake_followers(&self, at: &PartitionNames) -> Result<()> {
        let mut reply = self.call(&scripts::WAKE_FOLLOWERS, at).arg("").reply().await?;
        self.read_wake_up_error(at, &mut reply).map(drop)
    }

    /// Pauses a partition with a reason, or resumes it. Answers the reason that
    /// stood there before.
    pub async fn pause(&self, at: &PartitionNames, reason: Option<&str>) -> Result<Option<String>> {
        let mut reply = self.call(&scripts::PAUSE, at).arg(reason.unwrap_or_default()).reply().await?;
        let before = reply.maybe_text()?;
        self.read_wake_up_error(at, &mut reply)?;
        Ok(before)
    }

    /// Takes one step of the slow repair.
    pub async fn repair(&self, at: &PartitionNames, step: RepairStep) -> Result<Repaired> {
        let mut call = self.call(&scripts::REPAIR, at);
        call.arg(step.what.as_str()).arg(step.cursor).arg(step.count).arg(step.lease_ms);
        let mut reply = call.reply().await?;
        Ok(Repaired { cursor: reply.int()?, repaired: reply.int()?, looked_at: reply.int()? })
    }

    /// Forgets what a slot's last claim was, when its listener ends; if that led, tells the others.
    pub async fn release_claimer(&self, at: &PartitionNames, slot: SlotId) -> Result<()> {
        let mut reply = self.call(&scripts::WAKE_FOLLOWERS, at).arg(slot.as_bytes()).reply().await?;
        self.read_wake_up_error(at, &mut reply).map(drop)
    }
}

/// Reads the heads of partitions, and the time of their server.
///
/// # Errors
/// When they are something else.
pub fn read_peeked(mut reply: Reply) -> Result<(ServerTime, Vec<Heads>)> {
    Ok((reply.stamp, reply.each(Heads::read)?))
}

/// What is done to a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseMode {
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
    pub tracked: u64,
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
        let (timers, enrolled, letters) = (reply.int()?, reply.int()?, reply.int()?);
        let most = u32::try_from(reply.int()?).map_or(MAX_PARTITIONS, |most| most.min(MAX_PARTITIONS));
        Ok(Holdings { closed, forced, timers, tracked: enrolled, letters, most })
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
}
