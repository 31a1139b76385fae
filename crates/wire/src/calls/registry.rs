//! The topics that are registered, whoever uses them.

use keylapse_connection::cmd;

use crate::error::Result;
use crate::escape::plain;
use crate::{MAX_PARTITIONS, PartitionNames, Reply, Store, TopicEntry, check_name, names};

/// More topics than these are not looked at.
const EVERY_TOPIC: usize = 1_000_000;
const PAGE: usize = 500;
const READING: &str = "reading the list of topics";

/// An entry under its name; or why it is none of ours.
fn read(name: &[u8], entry: &[u8]) -> Result<TopicEntry, String> {
    let entry: TopicEntry = serde_json::from_slice(entry).map_err(|error| plain(&error.to_string(), 200))?;
    if entry.name.as_bytes() != name {
        return Err(format!("it calls itself {}", plain(&entry.name, 100)));
    }
    check_name("topic", &entry.name).map_err(|error| error.to_string())?;
    match entry.partitions {
        1..=MAX_PARTITIONS => Ok(entry),
        partitions => Err(format!("it has {partitions} partitions, of {MAX_PARTITIONS} at most")),
    }
}

/// What the registry has under a name that cannot be read: the name, and why not.
pub type Unreadable = (Vec<u8>, String);

impl Store {
    /// The registered topics of a namespace, as many as these. What is no entry of ours is left out.
    pub async fn registered(&self, namespace: &str, most: usize) -> Result<Vec<TopicEntry>> {
        let mut found = Vec::new();
        let take = |name: &[u8], entry: &[u8]| {
            found.extend(read(name, entry));
            found.len() < most
        };
        self.read_hash(READING, &names::registry(namespace), PAGE, take).await?;
        Ok(found)
    }

    /// All that is registered in a namespace, and what is there and cannot be read.
    pub async fn registry(&self, namespace: &str) -> Result<(Vec<TopicEntry>, Vec<Unreadable>)> {
        let (mut found, mut unreadable) = (Vec::new(), Vec::new());
        let take = |name: &[u8], entry: &[u8]| {
            match read(name, entry) {
                Ok(entry) => found.push(entry),
                Err(why) => unreadable.push((name.to_vec(), why)),
            }
            found.len() + unreadable.len() < EVERY_TOPIC
        };
        self.read_hash(READING, &names::registry(namespace), PAGE, take).await?;
        found.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        found.dedup_by(|one, other| one.name == other.name);
        unreadable.sort_unstable();
        unreadable.dedup();
        Ok((found, unreadable))
    }

    /// The topic that is registered under this name, or why it cannot be read.
    pub async fn registered_as(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Result<TopicEntry, String>>> {
        let registry = names::registry(namespace);
        let get = cmd("HGET").arg(&registry).arg(name).clone();
        let found = self.send("looking for a topic", registry.as_bytes(), &get).await?;
        let entry: Option<Vec<u8>> = keylapse_connection::from_redis_value(found).unwrap_or_default();
        Ok(entry.map(|entry| read(name.as_bytes(), &entry)))
    }

    /// How many timers these partitions hold.
    pub async fn count_timers(&self, partitions: &[PartitionNames]) -> Result<u64> {
        Ok(self.count("ZCARD", partitions, &["due", "quarantine"]).await?.into_iter().sum())
    }

    /// Whether a listener has said lately that it serves the topic of these partitions.
    pub async fn is_served(&self, partitions: &[PartitionNames]) -> Result<bool> {
        let Some(first) = partitions.first() else { return Ok(false) };
        let present = self.listeners(&names::listeners(&first.namespace)).await?;
        Ok(present.iter().any(|listener| listener.topics.contains_key(&first.topic)))
    }

    /// Goes through a hash, about so many fields at a time, for as long as `take` wants more of them and their values. One
    /// may come twice.
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
