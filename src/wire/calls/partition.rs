//! Partitions as a whole: what is next in them, pausing them, making them known.

use redis::{Value, cmd};
use tracing::warn;

use crate::error::{Error, ErrorKind, Result};
use crate::id::SlotId;
use crate::time::ServerTime;
use crate::wire::calls::claim::Heads;
use crate::wire::names::{self, PartitionNames};
use crate::wire::reply::Reply;
use crate::wire::scripts;
use crate::wire::store::Store;

/// Partitions that one call peeks at.
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

impl Store {
    /// The earliest scores of partitions, read cheaply, and the server's time; of none, only the time.
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
        let indexes: Vec<_> =
            partitions.iter().flat_map(|at| [at.key("due"), at.key("quarantine")]).collect();
        let command = self.script(&scripts::PEEK, indexes.into_iter());
        let answer = self.run_on(&self.0.node, &scripts::PEEK, &command).await?;
        read_peeked(Reply::new("peek", answer)?.stamped()?)
    }

    /// Pauses a partition with a reason, or resumes it. Answers the reason that
    /// stood there before.
    pub async fn pause(&self, at: &PartitionNames, reason: Option<&str>) -> Result<Option<String>> {
        let mut command = self.partition_script(&scripts::PAUSE, at);
        command.arg(reason.unwrap_or_default());
        self.run_at(&scripts::PAUSE, at, &command).await?.maybe_text()
    }

    /// Makes sure that the partitions exist as the caller believes, and lists
    /// the topic for others to find.
    pub async fn register(&self, topic: &TopicEntry, partitions: &[PartitionNames]) -> Result<()> {
        for at in partitions {
            self.agree(at).await?;
        }
        match partitions.first() {
            Some(first) => self.list(&names::registry(&first.namespace), topic).await,
            None => Ok(()),
        }
    }

    /// Lists a topic for others to find. Nothing is written where it stands
    /// already: a server that is full refuses writes, and has to be drained.
    async fn list(&self, registry: &str, topic: &TopicEntry) -> Result<()> {
        let entry = serde_json::to_string(topic)
            .map_err(|error| Error::invalid(format!("the topic cannot be registered: {error}")))?;
        let doing = "registering the topic";
        match self.0.node.call(doing, cmd("HGET").arg(registry).arg(&topic.name)).await {
            Ok(Value::BulkString(known)) if known == entry.as_bytes() => return Ok(()),
            Err(failed) if failed.error.kind() == ErrorKind::WrongType => {
                let error = failed.error.at_key(registry.as_bytes());
                warn!(%error, "the list of topics is for other programs to read; everything else works");
                return Ok(());
            }
            other => other?,
        };
        self.0.node.call(doing, cmd("HSET").arg(registry).arg(&topic.name).arg(entry)).await?;
        Ok(())
    }

    /// Forgets what a slot's last claim was, when its listener ends.
    pub async fn close_slot(&self, at: &PartitionNames, slot: SlotId) -> Result<()> {
        let mut forget = cmd("HDEL");
        forget.arg(at.key("slots")).arg(slot.as_bytes());
        self.0.node.call("closing a claim slot", &forget).await?;
        Ok(())
    }
}

pub(crate) fn read_peeked(mut reply: Reply) -> Result<(ServerTime, Vec<Heads>)> {
    Ok((reply.stamp, reply.each(Heads::read)?))
}
