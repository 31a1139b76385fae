//! The health of a listener, for readiness probes and for people.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::runtime::condition::oldest_overdue_ms;
use crate::runtime::{EventMode, LastError, RunningTopic, Runtime};

/// The health of a listener, from [`Listener::health`](crate::Listener::health). It is cheap to clone, and sends no
/// requests.
///
/// ```
/// use keylapse::health::Health;
///
/// /// Answers a readiness probe.
/// fn readiness(health: &Health) -> (u16, String) {
///     let topics: Vec<_> = health.topics().into_iter().filter(|topic| !topic.parked.is_empty()).collect();
///     (if health.is_ready() { 200 } else { 503 }, format!("{health:?}, parked: {topics:?}"))
/// }
/// ```
#[derive(Clone)]
pub struct Health(pub(super) Arc<Runtime>);

/// The number of running attempts, and its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capacity {
    /// Attempts that run, or are about to run.
    pub running: usize,
    /// The maximum number of attempts at the same time.
    pub limit: usize,
}

/// The work for attached keys that waits in a listener, in bytes. Both amounts are bounded. When they are reached,
/// further work waits in the queues of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttachedBacklog {
    /// Keys to read, and results of reads that are not written yet. A value to read counts with the maximum size that
    /// the topic keeps. At most 8 MiB are admitted, plus the next read of each partition, which waits.
    pub reads: usize,
    /// Expiries, deadlines and results of checks that are not written yet, without values. At most 12 MiB for each
    /// partition.
    pub writes: usize,
}

/// The health of one topic of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicHealth {
    /// The topic's name.
    pub name: String,
    /// The topic's running attempts, and their limit.
    pub capacity: Capacity,
    /// How long the earliest unclaimed timer was overdue at the last sweep. Sweeps run every 5 s or more often, or
    /// every 20 s with [`save_requests`](crate::ListenerBuilder::save_requests).
    pub oldest_overdue: Duration,
    /// The numbers of the parked partitions. No timer of them is claimed until one of their names is repaired; the
    /// log shows which.
    pub parked: Vec<u32>,
    /// For an attached topic, the commands and channels that the server refuses for lack of a right, with the errors.
    pub refused: Vec<String>,
    /// The last error of a claim or a settlement, and its time by this machine's clock. The cause may have ended
    /// since.
    pub last_error: Option<(SystemTime, String)>,
    /// The error of the last failed attempt, and its time by this machine's clock.
    pub last_failure: Option<(SystemTime, String)>,
}

impl Health {
    /// Returns whether the listener is ready: it has started, is not stopping, and the server answers.
    ///
    /// Missing heartbeats and parked partitions do not count: the other timers run on time, and a restart would
    /// repair neither. While [`mode`](Self::mode) returns [`EventMode::Starting`], a listener may miss events of
    /// attached keys.
    pub fn is_ready(&self) -> bool {
        self.0.readiness.is_ready() && self.connected()
    }

    /// Returns whether the server has answered the last call. A listener makes a call every five seconds or more
    /// often.
    pub fn connected(&self) -> bool {
        self.0.client.store.topology().is_answering()
    }

    /// Returns whether expired events arrive: a heartbeat was received, and none was missed since.
    pub fn heartbeat_received(&self) -> bool {
        self.0.receives_expirations()
    }

    /// Returns which events of keys the listener receives, like [`Stats::mode`](crate::stats::Stats::mode).
    pub fn mode(&self) -> EventMode {
        self.0.mode()
    }

    /// Returns how long the earliest unclaimed timer of all topics was overdue at the last sweep. Paused and parked
    /// topics count.
    pub fn oldest_overdue(&self) -> Duration {
        Duration::from_millis(oldest_overdue_ms(&self.0.partitions))
    }

    /// Returns how long the runtime of the handlers has polled no attempt. `None` means that it polls them.
    ///
    /// The runtime counts as stalled once an attempt was not polled for half a second. Its handlers block all its
    /// threads, or no thread drives it. The listener then releases the timers that were not polled, which uses up no
    /// attempt. It claims none until the runtime polls again.
    pub fn handlers_stalled(&self) -> Option<Duration> {
        self.0.stall.elapsed()
    }

    /// Returns the running attempts of all topics, and their limit.
    pub fn capacity(&self) -> Capacity {
        capacity(self.0.limiter.usage())
    }

    /// Returns the work for attached keys that waits. It stays near 0 as long as the server keeps up.
    pub fn attached_backlog(&self) -> AttachedBacklog {
        AttachedBacklog { reads: self.0.backlog.reads.get(), writes: self.0.backlog.writes.get() }
    }

    /// Returns the health of each topic.
    pub fn topics(&self) -> Vec<TopicHealth> {
        self.0.topics.iter().map(|topic| self.topic(topic)).collect()
    }

    fn topic(&self, topic: &RunningTopic) -> TopicHealth {
        let partitions = self.0.partitions_of(topic);
        let parked = partitions.iter().filter(|partition| partition.health.is_parked());
        TopicHealth {
            name: topic.config.name.clone(),
            capacity: capacity(self.0.limiter.usage_of(topic.index)),
            oldest_overdue: Duration::from_millis(oldest_overdue_ms(partitions)),
            parked: parked.map(|partition| partition.names.index).collect(),
            refused: topic.refusals.all(),
            last_error: LastError::get(&topic.last_error),
            last_failure: LastError::get(&topic.last_failure),
        }
    }
}

fn capacity((running, limit): (usize, usize)) -> Capacity {
    Capacity { running, limit }
}

impl std::fmt::Debug for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Health")
            .field("ready", &self.is_ready())
            .field("connected", &self.connected())
            .field("heartbeat_received", &self.heartbeat_received())
            .field("handlers_stalled", &self.handlers_stalled())
            .field("oldest_overdue", &self.oldest_overdue())
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}
