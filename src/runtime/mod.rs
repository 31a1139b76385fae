//! What a listener holds while it runs: state that its roles share, and no tasks.

pub(crate) mod clock;
pub(crate) mod deadline;
pub(crate) mod disposition;
pub(crate) mod event_mode;
pub(crate) mod leadership;
pub(crate) mod leases;
pub(crate) mod outbox;
pub(crate) mod partition;
pub(crate) mod permits;
pub(crate) mod stream_state;
pub(crate) mod topic;
pub(crate) mod wakeup;

pub(crate) use self::deadline::{DeadlineTimer, Seen};
pub(crate) use self::disposition::Ended;
pub(crate) use self::event_mode::EventMode;
pub(crate) use self::outbox::Settlement;
pub(crate) use self::partition::Partition;
pub(crate) use self::permits::Permits;
pub(crate) use self::stream_state::{Known, StreamState};
pub(crate) use self::topic::RunningTopic;

use std::sync::Arc;

use crate::client::Client;
use crate::pattern::Router;
use crate::stats::ListenerCounters;
use crate::wire::is_own;

/// What all roles of a listener share.
#[derive(Debug)]
pub(crate) struct Runtime {
    pub(crate) client: Client,
    pub(crate) topics: Vec<Arc<RunningTopic>>,
    pub(crate) partitions: Vec<Arc<Partition>>,
    /// From a key to the index of its topic.
    pub(crate) router: Router<usize>,
    pub(crate) stats: ListenerCounters,
    /// What is known of the stream, for attached topics.
    pub(crate) stream_state: Arc<StreamState>,
}

impl Runtime {
    /// The index of a key's partition; none for a key of no topic, and for keylapse's own.
    pub(crate) fn route(&self, key: &[u8]) -> Option<usize> {
        if is_own(self.client.prefix(), key) {
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
}
