//! What a listener holds while it runs: state that its roles share, and no tasks.

pub(crate) mod clock;
pub(crate) mod condition;
pub(crate) mod deadline;
pub(crate) mod ends;
pub(crate) mod groups;
pub(crate) mod leadership;
pub(crate) mod leases;
pub(crate) mod nodes;
pub(crate) mod partition;
pub(crate) mod permits;
pub(crate) mod stream_state;

pub(crate) use self::condition::{
    Amount, Asked, Condition, Gauge, LastError, Listening, Refusals, RefusedRead, Stall, Waiting,
};
pub(crate) use self::deadline::{DeadlineTimer, Seen};
pub(crate) use self::ends::{Ended, Settlement, Undecodable, first_undecodable};
pub(crate) use self::groups::{Groups, Member};
pub(crate) use self::leases::Lease;
pub(crate) use self::nodes::{NodeState, Nodes};
pub(crate) use self::partition::Partition;
pub(crate) use self::permits::{Demand, Permits};
pub(crate) use self::stream_state::{EventMode, Known, StreamState};

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

/// What all roles of a listener share.
#[derive(Debug)]
pub(crate) struct Runtime {
    /// By which others know it.
    pub(crate) id: String,
    pub(crate) client: Client,
    pub(crate) topics: Vec<Arc<RunningTopic>>,
    pub(crate) partitions: Vec<Arc<Partition>>,
    /// From a key to the index of its topic.
    pub(crate) router: Router<usize>,
    pub(crate) stats: ListenerCounters,
    /// The servers that it listens to.
    pub(crate) nodes: Nodes,
    /// What is known of the stream, for attached topics.
    pub(crate) stream_state: StreamState,
    /// What waits of attached topics' keys.
    pub(crate) waiting: Waiting,
    /// How many attempts may run.
    pub(crate) permits: Arc<Permits>,
    /// Whether it is past its start.
    pub(crate) listening: Listening,
    /// Set while the runtime of the handlers polls nothing.
    pub(crate) stall: Stall,
}

impl Runtime {
    /// The index of a key's partition; none for a key of no topic, and for keylapse's own.
    pub(crate) fn route(&self, key: &[u8]) -> Option<usize> {
        if is_own(&self.client.namespace, key) {
            return None;
        }
        self.router.route(key).map(|(_, topic)| self.topics[*topic].partition_of(key))
    }

    /// The topics whose keys other programs write.
    pub(crate) fn attached_topics(&self) -> impl Iterator<Item = &Arc<RunningTopic>> {
        self.topics.iter().filter(|topic| topic.config.attach.is_some())
    }

    /// The partitions of a topic.
    pub(crate) fn partitions_of(&self, topic: &RunningTopic) -> &[Arc<Partition>] {
        let first = topic.partition(0);
        &self.partitions[first..first + topic.config.partitions as usize]
    }

    /// Makes sure that a topic is there as this listener has it, and that others find it.
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
    /// Continues traces.
    pub(crate) extract: Option<Extract>,
    /// Why a call could not be made, or was refused.
    pub(crate) last_error: LastError,
    /// Why an attempt has failed.
    pub(crate) last_failure: LastError,
    /// Whether it was said lately that it has another number of partitions.
    pub(crate) renumbered: LogThrottle,
    /// Limits the warning that answers to its claims are lost.
    pub(crate) lost_answers: LogThrottle,
    /// The policy that it follows, in place of this program's.
    pub(crate) followed: OnceLock<Policy>,
    /// Of an attached topic.
    pub(crate) attached: AttachCounters,
    /// What the server refuses to tell of its keys.
    pub(crate) refusals: Refusals,
    /// Whether this listener enrols what it hears written.
    pub(crate) scanning: AtomicBool,
    /// The index of its first partition.
    pub(crate) first_partition: usize,
}

impl RunningTopic {
    /// Counts that an attempt has ended so.
    pub(crate) fn ended(&self, source: LapseSource, ending: Ending) {
        self.stats.ended(ending);
        self.meter.ended(source, ending);
    }

    /// The index of one of its partitions.
    pub(crate) fn partition(&self, number: usize) -> usize {
        self.first_partition + number
    }

    /// The index of the partition that a key belongs to.
    pub(crate) fn partition_of(&self, key: &[u8]) -> usize {
        self.partition(self.config.partition_of(key))
    }

    /// How its keys are treated, from the start of the listener on. Only asked of attached topics.
    pub(crate) fn policy(&self) -> &Policy {
        self.followed.get().unwrap_or_else(|| self.own_policy())
    }

    /// How this program asks for its keys to be treated. Only asked of attached topics.
    pub(crate) fn own_policy(&self) -> &Policy {
        self.config.attach.as_ref().expect("the topic is attached")
    }

    /// Treats its keys so, from the start of the listener on.
    pub(crate) fn follow(&self, policy: Policy) {
        let _ = self.followed.set(policy); // it starts once
    }
}

impl fmt::Debug for RunningTopic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.config.name)
    }
}
