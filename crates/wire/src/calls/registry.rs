//! The registry, which lists the topics of all programs.

use futures::future::join_all;
use keylapse_connection::{Value, cmd};
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::escape::escape_line;
use crate::lock::lock;
use crate::log::{debug, warn};
use crate::{MAX_PARTITIONS, PartitionNames, Reply, Store, check_name, names};

/// The entry of a topic in the registry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicEntry {
    /// The name.
    pub name: String,
    /// The pattern of the keys.
    pub pattern: String,
    /// The number of partitions.
    pub partitions: u32,
    /// True if the timers have marker keys.
    pub marker_keys: bool,
    /// True if other programs write the keys.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attached: bool,
}

impl TopicEntry {
    /// Returns the names of all partitions.
    pub fn all_partitions(&self, namespace: &str) -> Vec<PartitionNames> {
        let names = |index| PartitionNames::new(namespace, &self.name, index, self.partitions, self.attached);
        (0..self.partitions).map(names).collect()
    }
}

/// The maximum number of topics that are read.
const MAX_TOPICS: usize = 1_000_000;
const TOPICS_PER_PAGE: usize = 500;
/// The maximum number of partitions that are created at the same time.
const MAX_CONCURRENT_INITS: usize = 250;
const READING: &str = "reading the list of topics";

/// Decodes the entry under a name. Returns why it is invalid, if it is.
fn decode_entry(name: &[u8], entry: &[u8]) -> Result<TopicEntry, String> {
    let entry: TopicEntry =
        serde_json::from_slice(entry).map_err(|error| escape_line(&error.to_string(), 200))?;
    if entry.name.as_bytes() != name {
        return Err(format!("its name is {}", escape_line(&entry.name, 100)));
    }
    check_name("topic", &entry.name).map_err(|error| error.to_string())?;
    match entry.partitions {
        1..=MAX_PARTITIONS => Ok(entry),
        partitions => Err(format!("it has {partitions} partitions, where 1 to {MAX_PARTITIONS} are allowed")),
    }
}

/// A registry entry that cannot be read: its name and the reason.
pub type UnreadableRegistryEntry = (Vec<u8>, String);

impl Store {
    /// Creates missing partitions, and adds the topic to the registry. Fails if Redis has another number of partitions.
    pub async fn register(&self, topic: &TopicEntry, partitions: &[PartitionNames]) -> Result<()> {
        let Some((first, others)) = partitions.split_first() else { return Ok(()) };
        self.ensure_partition(first).await?;
        for some in others.chunks(MAX_CONCURRENT_INITS) {
            for made in join_all(some.iter().map(|at| self.init(at))).await {
                self.ignore_unavailable(&topic.name, made)?;
            }
        }
        lock(&self.0.registered).insert(topic.name.clone(), topic.clone());
        self.ignore_unavailable(&topic.name, self.list(&names::registry(&first.namespace), topic).await)
    }

    /// Ignores an unavailable server of a Redis Cluster, so that the topic runs on the other servers. The first call that
    /// finds a partition missing creates it.
    pub(super) fn ignore_unavailable(&self, topic: &str, made: Result<()>) -> Result<()> {
        match made {
            Err(error) if self.0.topology.is_cluster() && error.is_server_unavailable() => {
                debug!(topic, %error, "a part of the topic is on a server that does not answer");
                Ok(())
            }
            made => made,
        }
    }

    /// Adds the topic of a partition that was created again. The call that destroyed the topic has removed it from the
    /// registry.
    pub(crate) async fn register_again(&self, at: &PartitionNames) {
        let Some(topic) = lock(&self.0.registered).get(&at.topic).cloned() else { return };
        if let Err(error) = self.list(&names::registry(&at.namespace), &topic).await {
            debug!(topic = %at.topic, %error, "cannot list the topic");
        }
    }

    /// Adds a topic to the registry, or updates its entry. Writes nothing if the entry is up to date: a full server refuses
    /// writes, and must be drained.
    pub async fn list(&self, registry: &str, topic: &TopicEntry) -> Result<()> {
        let entry = serde_json::to_string(topic)
            .map_err(|error| Error::invalid(format!("the topic cannot be registered: {error}")))?;
        let doing = "registering the topic";
        match self.send(doing, registry.as_bytes(), cmd("HGET").arg(registry).arg(&topic.name)).await {
            Ok(Value::BulkString(known)) if known == entry.as_bytes() => return Ok(()),
            Ok(Value::BulkString(known)) => warn_of_another_pattern(topic, &known),
            Err(error) if error.kind() == ErrorKind::WrongType => {
                let error = error.at_key(registry.as_bytes());
                warn!(%error, "cannot list the topic for other programs; everything else works");
                return Ok(());
            }
            other => drop(other?),
        }
        let set = cmd("HSET").arg(registry).arg(&topic.name).arg(entry).clone();
        self.send(doing, registry.as_bytes(), &set).await.map(drop)
    }

    /// Removes a topic from the registry.
    pub async fn unlist(&self, at: &PartitionNames) -> Result<()> {
        let mut call = cmd("HDEL");
        let registry = names::registry(&at.namespace);
        call.arg(&registry).arg(&at.topic);
        self.send("removing the topic from the list", registry.as_bytes(), &call).await.map(drop)
    }

    /// Returns up to `most` registered topics of a namespace. Invalid entries are left out.
    pub async fn registered(&self, namespace: &str, most: usize) -> Result<Vec<TopicEntry>> {
        let mut found = Vec::new();
        let read_next = |name: &[u8], entry: &[u8]| {
            found.extend(decode_entry(name, entry));
            found.len() < most
        };
        self.read_hash(READING, &names::registry(namespace), TOPICS_PER_PAGE, read_next).await?;
        Ok(found)
    }

    /// Returns all registered topics of a namespace, and the entries that cannot be read.
    pub async fn registry(&self, namespace: &str) -> Result<(Vec<TopicEntry>, Vec<UnreadableRegistryEntry>)> {
        let (mut found, mut unreadable) = (Vec::new(), Vec::new());
        let read_next = |name: &[u8], entry: &[u8]| {
            match decode_entry(name, entry) {
                Ok(entry) => found.push(entry),
                Err(why) => unreadable.push((name.to_vec(), why)),
            }
            found.len() + unreadable.len() < MAX_TOPICS
        };
        self.read_hash(READING, &names::registry(namespace), TOPICS_PER_PAGE, read_next).await?;
        found.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        found.dedup_by(|one, other| one.name == other.name);
        unreadable.sort_unstable();
        unreadable.dedup();
        Ok((found, unreadable))
    }

    /// Returns the topic that is registered under this name, or why it cannot be read.
    pub async fn registered_as(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Result<TopicEntry, String>>> {
        let registry = names::registry(namespace);
        let get = cmd("HGET").arg(&registry).arg(name).clone();
        let found = self.send("looking for a topic", registry.as_bytes(), &get).await?;
        let entry: Option<Vec<u8>> = keylapse_connection::from_redis_value(found).unwrap_or_default();
        Ok(entry.map(|entry| decode_entry(name.as_bytes(), &entry)))
    }

    /// Returns how many timers these partitions hold.
    pub async fn count_timers(&self, partitions: &[PartitionNames]) -> Result<u64> {
        Ok(self.count("ZCARD", partitions, &["due", "quarantine"]).await?.into_iter().sum())
    }

    /// Returns whether a present listener reports that it serves the topic of these partitions.
    pub async fn is_served(&self, partitions: &[PartitionNames]) -> Result<bool> {
        let Some(first) = partitions.first() else { return Ok(false) };
        let present = self.listeners(&names::listeners(&first.namespace)).await?;
        Ok(present.iter().any(|listener| listener.serves(&first.topic)))
    }

    /// Scans a hash, with about `page` fields in each call, until `take` returns false. A field may come twice.
    pub(super) async fn read_hash(
        &self,
        doing: &'static str,
        hash: &str,
        page: usize,
        mut take: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let mut cursor = 0_u64;
        loop {
            let mut scan = cmd("HSCAN");
            scan.arg(hash).arg(cursor).arg("COUNT").arg(page);
            let mut reply = Reply::new("HSCAN", self.send(doing, hash.as_bytes(), &scan).await?)?;
            cursor = reply.int()?;
            let pairs = reply.list()?.each(Reply::bytes)?;
            let wants_more = pairs.chunks_exact(2).all(|pair| take(&pair[0], &pair[1]));
            if cursor == 0 || !wants_more {
                return Ok(());
            }
        }
    }

    async fn count(&self, by: &str, partitions: &[PartitionNames], names: &[&str]) -> Result<Vec<u64>> {
        let count = |at: &PartitionNames, name| (at.slot, cmd(by).arg(at.key(name)).clone());
        let counts = partitions.iter().flat_map(|at| names.iter().map(move |name| count(at, name)));
        let counts = self.0.topology.each("counting timers", counts.collect()).await.into_iter();
        counts.map(|count| Ok(keylapse_connection::from_redis_value(count?).unwrap_or_default())).collect()
    }
}

/// Warns of a changed pattern. The topic keeps its timers, and handlers receive those of other keys without captures.
fn warn_of_another_pattern(topic: &TopicEntry, known: &[u8]) {
    let Ok(before) = serde_json::from_slice::<TopicEntry>(known) else { return };
    if before.pattern != topic.pattern {
        warn!(
            topic = %topic.name,
            before = %escape_line(&before.pattern, 200),
            pattern = %topic.pattern,
            "the topic was registered with another pattern: timers with keys of the old pattern run without captures. If \
             another program still uses it, correct one of the two"
        );
    }
}
