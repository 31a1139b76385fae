//! Partitions as a whole: what is next in them, pausing them, repairing them, making them known.

use futures::future::join_all;
use keylapse_connection::{Value, cmd};

use crate::canary_tags::tag_of;
use crate::error::{Error, ErrorKind, Result};
use crate::escape::plain;
use crate::id::SlotId;
use crate::lock::lock;
use crate::log::{debug, warn};
use crate::run::Call;
use crate::time::ServerTime;
use crate::{Heads, PartitionNames, Reply, Store, names, scripts};

/// Partitions that one call peeks at, or that are made at the same time.
const PEEKED: usize = 250;

/// What the registry says of a topic.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TopicEntry {
    /// Its name.
    pub name: String,
    /// Its pattern.
    pub pattern: String,
    /// How many partitions it has.
    pub partitions: u32,
    /// Whether its timers have trigger keys.
    pub triggers: bool,
    /// Whether other programs write its keys.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attached: bool,
}

impl TopicEntry {
    /// The names of all its partitions.
    pub fn all_partitions(&self, namespace: &str) -> Vec<PartitionNames> {
        let names = |index| PartitionNames::new(namespace, &self.name, index, self.partitions, self.attached);
        (0..self.partitions).map(names).collect()
    }
}

/// One step of the slow repair.
#[derive(Clone, Debug)]
pub struct RepairStep {
    /// What to scan.
    pub what: Scan,
    /// Where the last step ended; 0 to begin.
    pub cursor: u64,
    /// How many entries to look at, roughly.
    pub count: usize,
    /// The lease that a held record without an index entry gets, in ms.
    pub lease_ms: u64,
}

/// What the slow repair scans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
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

impl Scan {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Records => "rec",
            Self::States => "run",
            Self::Next => "next",
            Self::Tried => "tried",
            Self::Slots => "slots",
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
    /// The earliest scores of partitions, read cheaply, each with the time of its server.
    pub async fn heads(&self, partitions: &[PartitionNames]) -> Vec<Result<(ServerTime, Heads)>> {
        if self.0.topology.are_many() {
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
        Call::run_all(&calls).await.into_iter().map(read).collect()
    }

    /// Asks whether the servers can be used: of a cluster, whether any of its primaries can be.
    pub async fn reach(&self, namespace: &str) -> Result<()> {
        let key = names::listeners(namespace);
        if !self.0.topology.are_many() {
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

    fn peek_call(&self, partitions: &[PartitionNames]) -> Call<'_> {
        let indexes: Vec<_> =
            partitions.iter().flat_map(|at| [at.key("due"), at.key("quarantine")]).collect();
        self.call_with(&scripts::PEEK, &indexes)
    }

    /// Tells other listeners that more is due than this one can run.
    pub async fn announce_left(&self, at: &PartitionNames) -> Result<()> {
        let mut reply = self.call(&scripts::LEFT, at).arg("").reply().await?;
        self.told(at, &mut reply).map(drop)
    }

    /// Pauses a partition with a reason, or resumes it. Answers the reason that
    /// stood there before.
    pub async fn pause(&self, at: &PartitionNames, reason: Option<&str>) -> Result<Option<String>> {
        let mut reply = self.call(&scripts::PAUSE, at).arg(reason.unwrap_or_default()).reply().await?;
        let before = reply.maybe_text()?;
        self.told(at, &mut reply)?;
        Ok(before)
    }

    /// Takes one step of the slow repair.
    pub async fn repair(&self, at: &PartitionNames, step: RepairStep) -> Result<Repaired> {
        let mut call = self.call(&scripts::REPAIR, at);
        call.arg(step.what.as_str()).arg(step.cursor).arg(step.count).arg(step.lease_ms);
        let mut reply = call.reply().await?;
        Ok(Repaired { cursor: reply.int()?, repaired: reply.int()?, looked_at: reply.int()? })
    }

    /// Makes sure that the partitions exist as the caller believes, and lists
    /// the topic for others to find.
    pub async fn register(&self, topic: &TopicEntry, partitions: &[PartitionNames]) -> Result<()> {
        let Some((first, others)) = partitions.split_first() else { return Ok(()) };
        self.agree(first).await?;
        for some in others.chunks(PEEKED) {
            for made in join_all(some.iter().map(|at| self.init(at))).await {
                self.unless_away(topic, made)?;
            }
        }
        lock(&self.0.registered).insert(topic.name.clone(), topic.clone());
        self.unless_away(topic, self.list(&names::registry(&first.namespace), topic).await)
    }

    /// Where there are several servers, one that is away does not keep a topic from the others: what is missing there is made
    /// by the first call that finds it so.
    fn unless_away(&self, topic: &TopicEntry, made: Result<()>) -> Result<()> {
        match made {
            Err(error) if self.0.topology.are_many() && error.is_away() => {
                debug!(topic = %topic.name, %error, "a part of the topic is on a server that is away");
                Ok(())
            }
            made => made,
        }
    }

    /// Lists the topic of a partition that was made anew: whoever destroyed it has removed it from the list.
    pub(crate) async fn list_anew(&self, at: &PartitionNames) {
        let Some(topic) = lock(&self.0.registered).get(&at.topic).cloned() else { return };
        if let Err(error) = self.list(&names::registry(&at.namespace), &topic).await {
            debug!(topic = %at.topic, %error, "the topic is not listed");
        }
    }

    /// Lists a topic for others to find. Nothing is written where it stands
    /// already: a server that is full refuses writes, and has to be drained.
    pub async fn list(&self, registry: &str, topic: &TopicEntry) -> Result<()> {
        let entry = serde_json::to_string(topic)
            .map_err(|error| Error::invalid(format!("the topic cannot be registered: {error}")))?;
        let doing = "registering the topic";
        match self.send(doing, registry.as_bytes(), cmd("HGET").arg(registry).arg(&topic.name)).await {
            Ok(Value::BulkString(known)) if known == entry.as_bytes() => return Ok(()),
            Ok(Value::BulkString(known)) => warn_of_another_pattern(topic, &known),
            Err(error) if error.kind() == ErrorKind::WrongType => {
                let error = error.at_key(registry.as_bytes());
                warn!(%error, "the list of topics is for other programs to read; everything else works");
                return Ok(());
            }
            other => drop(other?),
        }
        let set = cmd("HSET").arg(registry).arg(&topic.name).arg(entry).clone();
        self.send(doing, registry.as_bytes(), &set).await.map(drop)
    }

    /// Forgets what a slot's last claim was, when its listener ends; if that led, tells the others.
    pub async fn close_slot(&self, at: &PartitionNames, slot: SlotId) -> Result<()> {
        let mut reply = self.call(&scripts::LEFT, at).arg(slot.as_bytes()).reply().await?;
        self.told(at, &mut reply).map(drop)
    }
}

/// A topic keeps its timers when its pattern changes, and those of other keys are told to handlers without captures.
fn warn_of_another_pattern(topic: &TopicEntry, known: &[u8]) {
    let Ok(before) = serde_json::from_slice::<TopicEntry>(known) else { return };
    if before.pattern != topic.pattern {
        warn!(
            topic = %topic.name,
            before = %plain(&before.pattern, 200),
            pattern = %topic.pattern,
            "the topic was registered with another pattern: timers with keys of that run without captures, and if \
             another program still has it, one of the two is wrong"
        );
    }
}

pub fn read_peeked(mut reply: Reply) -> Result<(ServerTime, Vec<Heads>)> {
    Ok((reply.stamp, reply.each(Heads::read)?))
}
