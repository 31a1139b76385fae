//! What a listener keeps for each topic and for each partition.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::touches::SLACK;
use crate::attach::bumped;
use crate::claim::{Alarm, Places, Suspects};
use crate::clock::Clock;
use crate::complaint::Outage;
use crate::dispatch::Flights;
use crate::handler::AnyHandler;
use crate::lapse::Source;
use crate::outcome::Outcome;
use crate::settle::{Before, Decision, Outbox, Settlement, Verdict};
use crate::stats::{AttachCounters, TopicCounters};
use crate::store::foreign::ForeignKeys;
use crate::store::keys::Partition;
use crate::store::{Claimed, End, Held};
use crate::time::Reading;
use crate::topic::Shape;

/// Looks on behalf of notifications, at most one in this time.
const NOTIFIED_EVERY: Duration = Duration::from_millis(250);

/// A topic as a listener runs it.
pub(crate) struct TopicRun {
    pub(crate) index: usize,
    pub(crate) shape: Shape,
    pub(crate) handler: Arc<dyn AnyHandler>,
    pub(crate) stats: TopicCounters,
    /// Of an attached topic.
    pub(crate) attached: AttachCounters,
    /// Whether this listener enrols what it hears written.
    keeping: AtomicBool,
    /// Where the desks of its partitions begin.
    pub(crate) first_desk: OnceLock<usize>,
}

impl TopicRun {
    pub(super) fn new(index: usize, shape: Shape, handler: Arc<dyn AnyHandler>) -> Self {
        Self {
            index,
            shape,
            handler,
            stats: TopicCounters::default(),
            attached: AttachCounters::default(),
            keeping: AtomicBool::new(false),
            first_desk: OnceLock::new(),
        }
    }

    /// The place of the desk of one of its partitions.
    pub(crate) fn desk(&self, partition: usize) -> usize {
        self.first_desk.get().copied().unwrap_or(0) + partition
    }

    pub(crate) fn keeping(&self) -> bool {
        self.keeping.load(Ordering::Acquire)
    }

    pub(crate) fn set_keeping(&self, keeping: bool) {
        self.keeping.store(keeping, Ordering::Release);
    }

    /// The place of the desk that a key belongs to.
    pub(crate) fn desk_of(&self, key: &[u8]) -> usize {
        self.desk(self.shape.partition_of(key))
    }
}

impl fmt::Debug for TopicRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.shape.name)
    }
}

/// One partition as a listener serves it.
pub(crate) struct Desk {
    pub(crate) at: Partition,
    pub(crate) topic: Arc<TopicRun>,
    pub(crate) places: Arc<Places>,
    pub(crate) outage: Arc<Outage>,
    /// The keys of other programs.
    pub(crate) foreign: Option<Arc<dyn ForeignKeys>>,
    pub(crate) alarm: Alarm,
    pub(crate) clock: Clock,
    /// When attached keys are to be looked at.
    pub(crate) looks: Alarm,
    pub(crate) flights: Flights,
    pub(crate) outbox: Outbox,
    /// The place of this desk in the listener.
    index: usize,
    suspects: Arc<Suspects>,
    seen: Mutex<Seen>,
}

/// What all desks of a listener share.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) places: Arc<Places>,
    pub(super) suspects: Arc<Suspects>,
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

impl Desk {
    pub(super) fn new(index: usize, at: Partition, topic: Arc<TopicRun>, shared: &Shared) -> Self {
        let Shared { places, suspects, outage, foreign, linger } = shared.clone();
        Self {
            at,
            topic,
            places,
            outage,
            foreign,
            alarm: Alarm::default(),
            clock: Clock::default(),
            looks: Alarm::default(),
            flights: Flights::default(),
            outbox: Outbox::new(linger),
            index,
            suspects,
            seen: Mutex::default(),
        }
    }

    /// Hands over how an attempt ended.
    pub(crate) fn settle(&self, held: Held, verdict: Verdict, before: &Before, payload: &Bytes) {
        self.count(&verdict);
        let decision = verdict.decide(&self.topic.shape, before);
        let restore = self.restore(&decision, payload);
        self.outbox.put(Settlement { restore, ..Settlement::new(held, decision) });
    }

    /// The value to be written back for a retry, where the topic asks for that.
    fn restore(&self, decision: &Decision, payload: &Bytes) -> Option<Bytes> {
        match decision {
            Decision::End(End::Retry { attempt, .. }) => {
                bumped(payload, self.topic.shape.write_back()?, *attempt)
            }
            _ => None,
        }
    }

    /// Ends a timer without an attempt.
    pub(crate) fn end(&self, held: Held, end: End) {
        self.outbox.put(Settlement::new(held, Decision::End(end)));
    }

    fn count(&self, verdict: &Verdict) {
        let stats = &self.topic.stats;
        match verdict {
            Verdict::Ended(Outcome::Drop) => stats.dropped.add(1),
            Verdict::Ended(Outcome::Snooze(_)) => {}
            Verdict::Ended(_) => stats.handled.add(1),
            Verdict::Superseded => stats.superseded.add(1),
            Verdict::Undecodable(_) => stats.failed.add(1),
            Verdict::Failed { kind, .. } => {
                stats.failed.add(1);
                match *kind {
                    "panic" => stats.panics.add(1),
                    "timeout" => stats.timeouts.add(1),
                    _ => {}
                }
            }
        }
    }

    /// Notes how far a claim has looked, and what it saw of the suspects.
    pub(crate) fn note_look(&self, reading: Reading, claimed: &Claimed) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.until = Some(reading.arrived + self.topic.shape.lookahead + SLACK);
        drop(seen);
        self.suspects.note(self.index, claimed.heads.solo.map(|ms| reading.when(ms)));
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
        self.alarm.look(at, Source::Notification);
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.at)
    }
}
