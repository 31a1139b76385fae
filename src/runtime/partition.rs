//! What a listener keeps for each topic and for each partition.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::roles::expirer::SLACK;
use crate::attached::write_back::bumped;
use crate::runtime::wakeup::Wakeup;
use crate::runtime::permits::Permits;
use crate::runtime::quarantine::Quarantine;
use crate::runtime::clock::Clock;
use crate::log_throttle::Outage;
use crate::runtime::leases::Leases;
use crate::handler::AnyHandler;
use crate::lapse::Source;
use crate::outcome::Outcome;
use crate::runtime::disposition::{Before, Disposition, Ended};
use crate::runtime::outbox::{Outbox, Settlement};
use crate::stats::{AttachCounters, TopicCounters};
use crate::wire::attached::ForeignKeys;
use crate::wire::names::Partition;
use crate::wire::types::{Claimed, End, Held};
use crate::time::Reading;
use crate::topic::TopicConfig;

/// DueChecks on behalf of notifications, at most one in this time.
const NOTIFIED_EVERY: Duration = Duration::from_millis(250);

/// A topic as a listener runs it.
pub(crate) struct RunningTopic {
    pub(crate) index: usize,
    pub(crate) config: TopicConfig,
    pub(crate) handler: Arc<dyn AnyHandler>,
    pub(crate) stats: TopicCounters,
    /// Of an attached topic.
    pub(crate) attached: AttachCounters,
    /// Whether this listener enrols what it hears written.
    keeping: AtomicBool,
    /// Where the partitions of its partitions begin.
    pub(crate) first_partition: OnceLock<usize>,
}

impl RunningTopic {
    pub(super) fn new(index: usize, config: TopicConfig, handler: Arc<dyn AnyHandler>) -> Self {
        Self {
            index,
            config,
            handler,
            stats: TopicCounters::default(),
            attached: AttachCounters::default(),
            keeping: AtomicBool::new(false),
            first_partition: OnceLock::new(),
        }
    }

    /// The place of the partition of one of its partitions.
    pub(crate) fn partition(&self, partition: usize) -> usize {
        self.first_partition.get().copied().unwrap_or(0) + partition
    }

    pub(crate) fn keeping(&self) -> bool {
        self.keeping.load(Ordering::Acquire)
    }

    pub(crate) fn set_keeping(&self, keeping: bool) {
        self.keeping.store(keeping, Ordering::Release);
    }

    /// The place of the partition that a key belongs to.
    pub(crate) fn partition_of(&self, key: &[u8]) -> usize {
        self.partition(self.config.partition_of(key))
    }
}

impl fmt::Debug for RunningTopic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.config.name)
    }
}

/// One partition as a listener serves it.
pub(crate) struct Partition {
    pub(crate) at: Partition,
    pub(crate) topic: Arc<RunningTopic>,
    pub(crate) permits: Arc<Permits>,
    pub(crate) outage: Arc<Outage>,
    /// The keys of other programs.
    pub(crate) foreign: Option<Arc<dyn ForeignKeys>>,
    pub(crate) wakeup: Wakeup,
    pub(crate) clock: Clock,
    /// When attached keys are to be looked at.
    pub(crate) checks: Wakeup,
    pub(crate) leases: Leases,
    pub(crate) outbox: Outbox,
    /// The place of this partition in the listener.
    index: usize,
    quarantine: Arc<Quarantine>,
    seen: Mutex<Seen>,
}

/// What all partitions of a listener share.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) permits: Arc<Permits>,
    pub(super) quarantine: Arc<Quarantine>,
    pub(super) outage: Arc<Outage>,
    pub(super) foreign: Option<Arc<dyn ForeignKeys>>,
    /// How long the end of an attempt waits for others.
    pub(super) linger: Duration,
}

/// How far the last look reached.
#[derive(Default)]
struct Seen {
    until: Option<Instant>,
    notified: Option<Instant>,
}

impl Partition {
    pub(super) fn new(index: usize, at: Partition, topic: Arc<RunningTopic>, shared: &Shared) -> Self {
        let Shared { permits, quarantine, outage, foreign, linger } = shared.clone();
        Self {
            at,
            topic,
            permits,
            outage,
            foreign,
            wakeup: Wakeup::default(),
            clock: Clock::default(),
            checks: Wakeup::default(),
            leases: Leases::default(),
            outbox: Outbox::new(linger),
            index,
            quarantine,
            seen: Mutex::default(),
        }
    }

    /// Hands over how an attempt ended.
    pub(crate) fn settle(&self, held: Held, verdict: Ended, before: &Before, payload: &Bytes) {
        self.count(&verdict);
        let decision = verdict.decide(&self.topic.config, before);
        let restore = self.restore(&decision, payload);
        self.outbox.put(Settlement { restore, ..Settlement::new(held, decision) });
    }

    /// The value to be written back for a retry, where the topic asks for that.
    fn restore(&self, decision: &Disposition, payload: &Bytes) -> Option<Bytes> {
        match decision {
            Disposition::End(End::Retry { attempt, .. }) => {
                bumped(payload, self.topic.config.write_back()?, *attempt)
            }
            _ => None,
        }
    }

    /// Ends a timer without an attempt.
    pub(crate) fn end(&self, held: Held, end: End) {
        self.outbox.put(Settlement::new(held, Disposition::End(end)));
    }

    fn count(&self, verdict: &Ended) {
        let stats = &self.topic.stats;
        match verdict {
            Ended::Ended(Outcome::Drop) => stats.dropped.add(1),
            Ended::Ended(Outcome::Snooze(_)) => {}
            Ended::Ended(_) => stats.handled.add(1),
            Ended::Superseded => stats.superseded.add(1),
            Ended::Undecodable(_) => stats.failed.add(1),
            Ended::Failed { kind, .. } => {
                stats.failed.add(1);
                match *kind {
                    "panic" => stats.panics.add(1),
                    "timeout" => stats.timeouts.add(1),
                    _ => {}
                }
            }
        }
    }

    /// Notes how far a claim has looked, and what it saw of the quarantine.
    pub(crate) fn note_look(&self, reading: Reading, claimed: &Claimed) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.until = Some(reading.arrived + self.topic.config.lookahead + SLACK);
        drop(seen);
        self.quarantine.note(self.index, claimed.heads.solo.map(|ms| reading.when(ms)));
    }

    /// An expired key was announced: worth a look, unless the last one has
    /// covered it; and never a look for each key, or many listeners would do
    /// each other's work over and over.
    pub(crate) fn note_expired(&self) {
        let now = Instant::now();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.until.is_some_and(|until| now <= until) {
            return;
        }
        let at = seen.notified.map_or(now, |last| (last + NOTIFIED_EVERY).max(now));
        if at > now && seen.notified.is_some_and(|last| last > now) {
            return; // one is planned already
        }
        seen.notified = Some(at);
        drop(seen);
        self.wakeup.look(at, Source::Notification);
    }
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.at)
    }
}
