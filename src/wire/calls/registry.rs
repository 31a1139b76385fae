//! The topics that are registered, whoever uses them.

use redis::cmd;
use serde::de::DeserializeOwned;

use crate::error::Result;
use crate::wire::{MAX_PARTITIONS, PartitionNames, Reply, Store, TopicEntry, check_name, names};

/// For those who want all topics there are.
#[cfg(feature = "console")]
pub(crate) const EVERY_TOPIC: usize = 1_000_000;
const PAGE: usize = 500;

/// Whether an entry could be one of ours.
fn is_readable(entry: &TopicEntry) -> bool {
    check_name("topic", &entry.name).is_ok() && (1..=MAX_PARTITIONS).contains(&entry.partitions)
}

impl Store {
    /// The registered topics of a namespace, as many as these. What is no entry of ours is left out.
    pub(crate) async fn registered(&self, namespace: &str, most: usize) -> Result<Vec<TopicEntry>> {
        let mut found = Vec::new();
        let take = |entry: TopicEntry| {
            if is_readable(&entry) {
                found.push(entry);
            }
            found.len() < most
        };
        self.read_hash("reading the list of topics", &names::registry(namespace), PAGE, take).await?;
        Ok(found)
    }

    /// The topic that is registered under this name.
    #[cfg(feature = "console")]
    pub(crate) async fn registered_as(&self, namespace: &str, name: &str) -> Result<Option<TopicEntry>> {
        let registry = names::registry(namespace);
        let get = cmd("HGET").arg(&registry).arg(name).clone();
        let found = self.send("looking for a topic", registry.as_bytes(), &get).await?;
        let entry: Option<Vec<u8>> = redis::from_redis_value(found).unwrap_or_default();
        let entry = entry.and_then(|entry| serde_json::from_slice::<TopicEntry>(&entry).ok());
        Ok(entry.filter(|entry| entry.name == name && is_readable(entry)))
    }

    /// How many timers these partitions hold.
    pub(crate) async fn count_timers(&self, partitions: &[PartitionNames]) -> Result<u64> {
        Ok(self.count("ZCARD", partitions, &["due", "quarantine"]).await?.into_iter().sum())
    }

    /// Whether a listener has said lately that it serves the topic of these partitions.
    pub(crate) async fn is_served(&self, partitions: &[PartitionNames]) -> Result<bool> {
        let Some(first) = partitions.first() else { return Ok(false) };
        let present = self.listeners(&names::listeners(&first.namespace)).await?;
        Ok(present.iter().any(|listener| listener.topics.contains_key(&first.topic)))
    }

    /// Goes through a hash of JSON, about so many fields at a time, for as long as `take` wants more. What cannot be
    /// read is of another version, or of somebody else, and left out. A value may come twice.
    pub(super) async fn read_hash<T: DeserializeOwned>(
        &self,
        doing: &'static str,
        hash: &str,
        page: usize,
        mut take: impl FnMut(T) -> bool,
    ) -> Result<()> {
        let (mut cursor, mut wants_more) = (0_u64, true);
        loop {
            let mut scan = cmd("HSCAN");
            scan.arg(hash).arg(cursor).arg("COUNT").arg(page);
            let mut reply = Reply::new("HSCAN", self.send(doing, hash.as_bytes(), &scan).await?)?;
            cursor = reply.int()?;
            let pairs = reply.list()?.each(Reply::bytes)?;
            let values = pairs.chunks_exact(2).filter_map(|pair| serde_json::from_slice(&pair[1]).ok());
            values.for_each(|value| wants_more = take(value));
            if cursor == 0 || !wants_more {
                return Ok(());
            }
        }
    }

    async fn count(&self, by: &str, partitions: &[PartitionNames], names: &[&str]) -> Result<Vec<u64>> {
        let count = |at: &PartitionNames, name| (at.slot, cmd(by).arg(at.key(name)).clone());
        let counts = partitions.iter().flat_map(|at| names.iter().map(move |name| count(at, name)));
        let counts = self.0.topology.each("counting timers", counts.collect()).await.into_iter();
        counts.map(|count| Ok(redis::from_redis_value(count?).unwrap_or_default())).collect()
    }
}
