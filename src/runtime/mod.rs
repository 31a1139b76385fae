//! The state of a running listener, which its roles share. This module has no tasks.

pub(crate) mod clock;
pub(crate) mod concurrency;
pub(crate) mod condition;
pub(crate) mod deadline;
pub(crate) mod groups;
pub(crate) mod leadership;
pub(crate) mod leases;
pub(crate) mod nodes;
pub(crate) mod partition;
pub(crate) mod settlement;
pub(crate) mod stream_state;

pub(crate) use self::concurrency::{ConcurrencyLimiter, Demand};
pub(crate) use self::condition::{
    BacklogGauges, ByteGauge, ByteGaugeGuard, LastError, ListenerReadiness, PartitionHealth, Refusals,
    RefusedRead, RequiredPermission, Stall,
};
pub(crate) use self::deadline::{DeadlineTimer, WakeResult};
pub(crate) use self::groups::{QuarantineGroups, QuarantineMember};
pub(crate) use self::leases::Lease;
pub(crate) use self::nodes::{NodeState, Nodes};
pub(crate) use self::partition::Partition;
pub(crate) use self::settlement::{AttemptResult, Settlement, Undecodable, undecodable_since};
pub(crate) use self::stream_state::{EventMode, StreamSnapshot, StreamState};

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use crate::client::Client;
use crate::error::Result;
use crate::handler::AnyHandler;
use crate::lapse::LapseSource;
use crate::log::LogThrottle;
use crate::pattern::Router;
use crate::policy::Policy;
use crate::stats::{AttachCounters, ListenerCounters, Meter, TopicCounters};
use crate::topic::TopicConfig;
use crate::trace::Extract;
use crate::wire::{Ending, is_own};

/// The state that all roles of a listener share.
#[derive(Debug)]
pub(crate) struct Runtime {
    /// The ID of this listener in reports to others.
    pub(crate) id: String,
    pub(crate) client: Client,
    pub(crate) topics: Vec<Arc<RunningTopic>>,
    pub(crate) partitions: Vec<Arc<Partition>>,
    /// Maps a key to the index of its topic in `topics`.
    pub(crate) router: Router<usize>,
    pub(crate) stats: ListenerCounters,
    /// The servers that hold slots: the only server, or the primaries of a cluster.
    pub(crate) nodes: Nodes,
    /// The combined state of their event streams, for attached topics.
    pub(crate) stream_state: StreamState,
    /// The bytes of queued work of attached topics.
    pub(crate) backlog: BacklogGauges,
    /// Limits the attempts that run at the same time.
    pub(crate) limiter: Arc<ConcurrencyLimiter>,
    pub(crate) readiness: ListenerReadiness,
    /// Set while the runtime of the handlers is blocked.
    pub(crate) stall: Stall,
}

impl Runtime {
    /// Returns the index of a key's partition, or `None` for a key of no topic and for keylapse's own names.
    pub(crate) fn route(&self, key: &[u8]) -> Option<usize> {
        if is_own(&self.client.namespace, key) {
            return None;
        }
        self.router.route(key).map(|(_, topic)| self.topics[*topic].partition_of(key))
    }

    /// Returns the attached topics.
    pub(crate) fn attached_topics(&self) -> impl Iterator<Item = &Arc<RunningTopic>> {
        self.topics.iter().filter(|topic| topic.config.attach.is_some())
    }

    /// Returns the partitions of a topic.
    pub(crate) fn partitions_of(&self, topic: &RunningTopic) -> &[Arc<Partition>] {
        let first = topic.partition_index(0);
        &self.partitions[first..first + topic.config.partitions as usize]
    }

    /// Registers a topic in Redis, and fails if its entry there has other settings.
    pub(crate) async fn register(&self, topic: &RunningTopic) -> Result<()> {
        let (store, entry) = (&self.client.store, topic.config.entry());
        let names = self.partitions_of(topic).iter().map(|partition| partition.names.clone());
        let partitions: Vec<_> = names.collect();
        store.register(&entry, &partitions).await?;
        match topic.config.journal {
            Some(bounds) => store.keep_journals(&entry.name, bounds, &partitions).await,
            None => Ok(()),
        }
    }
}

/// A topic, its handler and its counters.
pub(crate) struct RunningTopic {
    pub(crate) index: usize,
    pub(crate) config: TopicConfig,
    pub(crate) handler: AnyHandler,
    pub(crate) stats: TopicCounters,
    pub(crate) meter: Meter,
    /// The program's function that continues the trace of an arm in the handler.
    pub(crate) extract: Option<Extract>,
    /// The last error of a claim or a settlement.
    pub(crate) last_error: LastError,
    /// The last error of an attempt.
    pub(crate) last_failure: LastError,
    /// Limits the log line that the topic has another number of partitions.
    pub(crate) renumbered: LogThrottle,
    /// Limits the log line that answers to its claims are lost.
    pub(crate) lost_answers: LogThrottle,
    /// The policy of an attached topic in Redis, if it replaces this program's policy.
    pub(crate) policy_in_redis: OnceLock<Policy>,
    /// The counters of an attached topic.
    pub(crate) attached: AttachCounters,
    /// The permissions for keys of an attached topic that the user lacks.
    pub(crate) refusals: Refusals,
    /// True if this listener tracks keys of an attached topic when they are written.
    pub(crate) tracks_written_keys: AtomicBool,
    /// The index of its first partition.
    pub(crate) first_partition: usize,
}

impl RunningTopic {
    /// Counts the end of an attempt in the counters and the metrics.
    pub(crate) fn count_end(&self, source: LapseSource, ending: Ending) {
        self.stats.ended(ending);
        self.meter.ended(source, ending);
    }

    /// Returns the index of a partition of the topic among all partitions of the listener.
    pub(crate) fn partition_index(&self, number: usize) -> usize {
        self.first_partition + number
    }

    /// Returns the index of a key's partition among all partitions of the listener.
    pub(crate) fn partition_of(&self, key: &[u8]) -> usize {
        self.partition_index(self.config.partition_of(key))
    }

    /// Returns the policy of an attached topic, which does not change after the start. Panics for other topics.
    pub(crate) fn policy(&self) -> &Policy {
        self.policy_in_redis.get().unwrap_or_else(|| self.own_policy())
    }

    /// Returns this program's policy of an attached topic. Panics for other topics.
    pub(crate) fn own_policy(&self) -> &Policy {
        self.config.attach.as_ref().expect("the topic is attached")
    }

    /// Replaces this program's policy by the policy in Redis, at the start of the listener.
    pub(crate) fn adopt_policy(&self, policy: Policy) {
        let _ = self.policy_in_redis.set(policy); // cannot fail: a listener starts only once
    }
}

impl fmt::Debug for RunningTopic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.config.name)
    }
}
