//! How a listener is: for readiness probes, and for people who wonder.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::runtime::condition::oldest_overdue_ms;
use crate::runtime::{EventMode, LastError, RunningTopic, Runtime};

/// A view of how a listener is, from [`Listener::health`](crate::Listener::health). Cheap to clone; asks nothing of
/// the server.
///
/// ```
/// use keylapse::health::Health;
///
/// /// What a readiness probe gets.
/// fn readiness(health: &Health) -> (u16, String) {
///     let topics: Vec<_> = health.topics().into_iter().filter(|topic| !topic.parked.is_empty()).collect();
///     (if health.is_ready() { 200 } else { 503 }, format!("{health:?}, parked: {topics:?}"))
/// }
/// ```
#[derive(Clone)]
pub struct Health(pub(super) Arc<Runtime>);

/// How many attempts run, and how many may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Places {
    /// Attempts that run, or are about to.
    pub running: usize,
    /// How many may at a time.
    pub limit: usize,
}

/// What waits of attached topics' keys in a listener, in bytes. Both are bounded, and what finds no room waits where it
/// was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttachedBacklog {
    /// Keys that are to be read, and what was read of them and is not written down yet; values that are to be read
    /// count with the most that the topic keeps. At most 8 MiB find room, and one asker of each partition waits.
    pub reads: usize,
    /// Notes of expiries, deadlines and verdicts that are to be written down, without values. At most 12 MiB for each
    /// partition.
    pub writes: usize,
}

/// How one topic of a listener is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicHealth {
    /// Its name.
    pub name: String,
    /// Its places.
    pub places: Places,
    /// For how long its first timer was overdue, unclaimed, when a sweep last looked: within the last five seconds.
    pub oldest_overdue: Duration,
    /// The numbers of its partitions of which nothing can be claimed until one of their names is repaired; the log
    /// says which.
    pub parked: Vec<u32>,
    /// Of an attached topic: what the server refuses to let it learn of its keys at present, and why. A right is
    /// missing.
    pub refused: Vec<String>,
    /// The last error of a claim or a settlement, and when that was by this machine's clock. It may be long over.
    pub last_error: Option<(SystemTime, String)>,
    /// The error of the last attempt that has failed.
    pub last_failure: Option<(SystemTime, String)>,
}

impl Health {
    /// Whether it can do its work: it is past its start, not stopping yet, and the server answers.
    ///
    /// That no canary is heard or a partition is parked is none of this: the other timers run on time, and a restart
    /// would mend neither. While [`mode`](Self::mode) returns [`EventMode::Starting`], a listener may miss events of attached
    /// keys.
    pub fn is_ready(&self) -> bool {
        self.0.listening.is_ready() && self.connected()
    }

    /// Whether the last call was answered. A listener makes one every five seconds at least.
    pub fn connected(&self) -> bool {
        self.0.client.store.topology().answer()
    }

    /// Whether a canary was heard, and none was missed since: expired events flow.
    pub fn canary_heard(&self) -> bool {
        self.0.hears()
    }

    /// Returns what is heard of expired keys, as [`Stats::mode`](crate::stats::Stats::mode) returns it.
    pub fn mode(&self) -> EventMode {
        self.0.mode()
    }

    /// For how long the first timer of all topics was overdue, unclaimed, when a sweep last looked. Paused and
    /// parked topics count.
    pub fn oldest_overdue(&self) -> Duration {
        Duration::from_millis(oldest_overdue_ms(&self.0.partitions))
    }

    /// Returns for how long the runtime of the handlers has polled nothing. None: it polls what it is given.
    ///
    /// A listener begins with that once an attempt was not polled for half a second: handlers block all threads of
    /// their runtime, or nobody drives it. It hands back what was not polled, which uses up no attempt, and claims
    /// nothing until the runtime polls again.
    pub fn handlers_stalled(&self) -> Option<Duration> {
        self.0.stall.lasts()
    }

    /// The places of all topics together.
    pub fn places(&self) -> Places {
        places(self.0.permits.usage())
    }

    /// What waits of attached topics' keys. It stays near 0 as long as the server keeps up.
    pub fn attached_backlog(&self) -> AttachedBacklog {
        AttachedBacklog { reads: self.0.waiting.reads.get(), writes: self.0.waiting.writes.get() }
    }

    /// How each topic is.
    pub fn topics(&self) -> Vec<TopicHealth> {
        self.0.topics.iter().map(|topic| self.topic(topic)).collect()
    }

    fn topic(&self, topic: &RunningTopic) -> TopicHealth {
        let partitions = self.0.partitions_of(topic);
        let parked = partitions.iter().filter(|partition| partition.condition.is_parked());
        TopicHealth {
            name: topic.config.name.clone(),
            places: places(self.0.permits.usage_of(topic.index)),
            oldest_overdue: Duration::from_millis(oldest_overdue_ms(partitions)),
            parked: parked.map(|partition| partition.names.index).collect(),
            refused: topic.refusals.all(),
            last_error: LastError::get(&topic.last_error),
            last_failure: LastError::get(&topic.last_failure),
        }
    }
}

fn places((running, limit): (usize, usize)) -> Places {
    Places { running, limit }
}

impl std::fmt::Debug for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Health")
            .field("ready", &self.is_ready())
            .field("connected", &self.connected())
            .field("canary_heard", &self.canary_heard())
            .field("handlers_stalled", &self.handlers_stalled())
            .field("oldest_overdue", &self.oldest_overdue())
            .field("places", &self.places())
            .finish_non_exhaustive()
    }
}
