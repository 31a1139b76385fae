//! A topic as a listener runs it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::handler::AnyHandler;
use crate::policy::Policy;
use crate::stats::{AttachCounters, TopicCounters};
use crate::topic::TopicConfig;

/// A topic, its handler and its counters.
pub(crate) struct RunningTopic {
    pub(crate) index: usize,
    pub(crate) config: TopicConfig,
    pub(crate) handler: AnyHandler,
    pub(crate) stats: TopicCounters,
    /// Of an attached topic.
    pub(crate) attached: AttachCounters,
    /// Whether this listener scans for it, and enrols what it hears written.
    scanning: AtomicBool,
    /// The index of its first partition.
    first_partition: usize,
}

impl RunningTopic {
    pub(crate) fn new(
        index: usize,
        first_partition: usize,
        config: TopicConfig,
        handler: AnyHandler,
    ) -> Self {
        Self {
            index,
            config,
            handler,
            stats: TopicCounters::default(),
            attached: AttachCounters::default(),
            scanning: AtomicBool::new(false),
            first_partition,
        }
    }

    /// The index of one of its partitions.
    pub(crate) fn partition(&self, number: usize) -> usize {
        self.first_partition + number
    }

    /// The index of the partition that a key belongs to.
    pub(crate) fn partition_of(&self, key: &[u8]) -> usize {
        self.partition(self.config.partition_of(key))
    }

    pub(crate) fn is_scanning(&self) -> bool {
        self.scanning.load(Ordering::Acquire)
    }

    pub(crate) fn set_scanning(&self, scanning: bool) {
        self.scanning.store(scanning, Ordering::Release);
    }

    /// How its keys are treated. Only asked of attached topics.
    pub(crate) fn policy(&self) -> &Policy {
        self.config.attach.as_ref().expect("the topic is attached")
    }
}

impl fmt::Debug for RunningTopic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.config.name)
    }
}
