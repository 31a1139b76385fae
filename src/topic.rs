//! Topics: the definition that producers and listeners share.

mod config;

pub use self::config::{MIN_LEASE, TopicConfig};

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::backoff::Backoff;
use crate::error::Result;
use crate::figures::Destinations;
use crate::pattern::Pattern;
use crate::payload::Codec;
use crate::time::{MAX_DEADLINE_MS, ms_ceil};
use crate::wire::{JournalBounds, fields_of};

/// A kind of timer: its name, the pattern of its keys, the type of its payload, and its retry policy.
///
/// Producers and listeners share a definition. Name, pattern, partitions and payload type must be equal in all programs.
/// Settings that only listeners use, such as retries and limits, may differ.
///
/// ```
/// use std::time::Duration;
/// use keylapse::{Backoff, Topic};
///
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Notice { url: String }
/// let notices = Topic::<Notice>::new("app:trans:notice:{id}")?
///     .retry(Backoff::payment_notice())
///     .timeout(Duration::from_secs(20));
/// assert_eq!(notices.name(), "app.trans.notice");
/// # Ok::<(), keylapse::Error>(())
/// ```
#[must_use = "each setting returns the changed topic"]
pub struct Topic<T> {
    pub(crate) config: TopicConfig,
    pub(crate) codec: Codec<T>,
}

impl<T: Serialize + DeserializeOwned> Topic<T> {
    /// Returns a topic whose payloads are JSON.
    ///
    /// Its name is the pattern's literal prefix with `.` for `:`. Timers wait under the name of their topic, so use
    /// [`named`](Topic::named) if the prefix may change, or if the pattern has no literal prefix. A listener warns at
    /// its start about topics with timers that no listener serves.
    ///
    /// # Errors
    /// Returns an error if the pattern is invalid or gives no name.
    pub fn new(pattern: &str) -> Result<Self> {
        Ok(Self { config: TopicConfig::new(pattern, None)?, codec: Codec::JSON })
    }

    /// Returns a topic with an explicit name, which stays the same if the pattern changes.
    ///
    /// # Errors
    /// Returns an error if the pattern or the name (`[A-Za-z0-9_.-]{1,128}`) is invalid.
    pub fn named(name: &str, pattern: &str) -> Result<Self> {
        Ok(Self { config: TopicConfig::new(pattern, Some(name))?, codec: Codec::JSON })
    }
}

impl Topic<Bytes> {
    /// Returns a topic whose payloads are bytes without encoding.
    ///
    /// # Errors
    /// Returns the errors of [`new`](Topic::new).
    pub fn raw(pattern: &str) -> Result<Self> {
        Ok(Self { config: TopicConfig::new(pattern, None)?, codec: Codec::RAW })
    }

    /// Returns a topic of bytes with an explicit name.
    ///
    /// # Errors
    /// Returns the errors of [`named`](Topic::named).
    pub fn raw_named(name: &str, pattern: &str) -> Result<Self> {
        Ok(Self { config: TopicConfig::new(pattern, Some(name))?, codec: Codec::RAW })
    }
}

impl<T> Topic<T> {
    fn with(mut self, change: impl FnOnce(&mut TopicConfig)) -> Self {
        change(&mut self.config);
        self
    }

    /// Sets the backoff schedule of failed attempts. Default: exponential from 1 s to 10 min with full jitter.
    pub fn retry(self, backoff: Backoff) -> Self {
        self.with(|all| all.backoff = backoff)
    }

    /// Sets after how many failed attempts a timer becomes a dead letter. Default: as many as the backoff's table
    /// allows, or 10 without a table.
    pub fn max_attempts(self, attempts: u32) -> Self {
        self.with(|all| all.max_attempts = Some(attempts))
    }

    /// Sets the maximum age of a timer, counted from its first deadline. An older timer becomes a dead letter when an
    /// attempt fails or snoozes. Default: 30 days.
    pub fn max_age(self, age: Duration) -> Self {
        self.with(|all| all.max_age = age)
    }

    /// Sets how often a timer may be snoozed before it becomes a dead letter. With `u16::MAX`, only
    /// [`max_age`](Self::max_age) limits it. Default: 1,000.
    pub fn max_snoozes(self, snoozes: u16) -> Self {
        self.with(|all| all.max_snoozes = snoozes)
    }

    /// Sets the longest delay of an arm. Longer delays are errors, because most are mistakes of units, such as
    /// milliseconds for seconds. Default: 10 years. Maximum: 100 years.
    pub fn max_delay(self, delay: Duration) -> Self {
        self.with(|all| all.max_delay = delay)
    }

    /// Sets how long a timer with an undecodable payload waits before it becomes a dead letter. Listeners retry it
    /// after 1 s to 5 min, without using up an attempt. During a rolling update, a listener of the other version can
    /// decode it. Default: 1 h. With zero the timer becomes a dead letter immediately.
    pub fn undecodable_retention(self, time: Duration) -> Self {
        self.with(|all| all.undecodable_for = time)
    }

    /// Sets the longest duration of an attempt. A longer attempt is stopped and counts as failed. Default: 60 s.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.with(|all| all.timeout = timeout)
    }

    /// Sets the duration of a lease. Listeners renew a lease after a third of it. After a crash another listener
    /// claims the timer within the lease plus about one second. Default: 30 s. Minimum: 0.3 s.
    pub fn lease(self, lease: Duration) -> Self {
        self.with(|all| all.lease = lease)
    }

    /// Sets how far ahead of their deadlines listeners claim timers, to start them without a round trip. Timers never
    /// start early. Default: 10 ms. Maximum: 1 s. Zero disables it.
    pub fn lookahead(self, lookahead: Duration) -> Self {
        self.with(|all| all.lookahead = lookahead)
    }

    /// Sets how many attempts of this topic a listener runs at the same time. Default: 100.
    pub fn concurrency(self, attempts: usize) -> Self {
        self.with(|all| all.concurrency = attempts)
    }

    /// Sets the topic's share of a listener's concurrency slots while several topics have due work. High, normal and
    /// low topics share them 6 : 3 : 1. Slots that a topic does not need go to the others. Default:
    /// `Priority::Normal`.
    ///
    /// A low topic is slow but never starves, except with
    /// [`strict_priorities`](crate::ListenerBuilder::strict_priorities). An idle topic starts its first timer
    /// immediately, in the slot that the listener [reserves](crate::ListenerBuilder::concurrency) for it. Running
    /// attempts are never interrupted. The ratio counts attempts, not their durations.
    pub fn priority(self, priority: Priority) -> Self {
        self.with(|all| all.priority = priority)
    }

    /// Sets the number of partitions of the topic. Each has its own index and its own slot in Redis Cluster. Default:
    /// 1. Maximum: 1,024.
    ///
    /// In a cluster, use at least twice as many as primaries, so that each primary has some and a new primary can
    /// take over some. A single server needs one.
    ///
    /// All programs must set the same number; others fail with an error of kind
    /// [`Partitions`](crate::ErrorKind::Partitions). To change the number of a topic in use, run `keylapse
    /// partitions` or `Console::repartition` of `keylapse-console`. Then restart all programs with the new number.
    pub fn partitions(self, partitions: u32) -> Self {
        self.with(|all| all.partitions = partitions)
    }

    /// Sets whether each timer has a marker key: a Redis key that expires at the deadline, visible to other programs.
    /// Without marker keys, a timer takes about 120 bytes less. Default: `true`.
    pub fn marker_keys(self, enabled: bool) -> Self {
        self.with(|all| all.marker_keys = enabled)
    }

    /// Sets the largest payload in bytes. Larger ones are errors. Default: 64 KiB. Maximum: 8 MiB.
    pub fn payload_limit(self, bytes: usize) -> Self {
        self.with(|all| all.payload_limit = bytes)
    }

    /// Sets how many dead letters each partition keeps, and for how long. The oldest are removed first, which is
    /// counted and logged. Default: 10,000 for 90 days.
    pub fn dead_letters(mut self, count: u64, age: Duration) -> Self {
        self.config.dead_letters.count = count;
        self.config.dead_letters.age_ms = ms_ceil(age);
        self
    }

    /// Names the destinations that the topic's handlers call, such as hosts. Listeners report the state of each
    /// destination, so operators see which of them delays work. Default: none.
    pub fn destinations(self, all: Arc<dyn Destinations>) -> Self {
        self.with(|config| config.destinations = Some(all))
    }

    /// Pauses a partition when its dead letters are full, instead of removing the oldest.
    /// [`Schedule::resume`](crate::Schedule::resume) continues it.
    pub fn pause_when_dead_letters_full(self) -> Self {
        self.with(|all| all.dead_letters.pause_when_full = true)
    }

    /// Sets how many ended timers each partition keeps in its journal, and for how long. An operator can read there
    /// how a timer ended: done, cancelled, replaced or dead. The oldest are removed first. Default: no journal.
    /// Maximum: 1,000,000.
    ///
    /// The server needs some microseconds for each end, and about 130 bytes and the key for each entry.
    ///
    /// A topic keeps its journal until a program sets `journal(0, Duration::ZERO)`. Programs without this setting do
    /// not change it. If two programs set different values, the last to start decides.
    pub fn journal(self, count: u64, age: Duration) -> Self {
        self.with(|all| {
            all.journal = Some(JournalBounds { count, age_ms: ms_ceil(age).min(MAX_DEADLINE_MS - 1) });
        })
    }

    /// Decodes the payload of a record. For an attached topic, this is the copy of the key's value.
    pub(crate) fn decode(&self, payload: &Bytes) -> Result<T> {
        if let (Some(_), Some(read), Some(fields)) =
            (&self.config.attach, self.codec.fields, fields_of(payload))
        {
            return read(&fields);
        }
        (self.codec.decode)(self.config.own_payload(payload.clone()))
    }

    /// Returns the topic's name.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Returns the pattern of the topic's keys.
    pub fn pattern(&self) -> &Pattern {
        &self.config.pattern
    }
}

impl<T> Clone for Topic<T> {
    fn clone(&self) -> Self {
        Self { config: self.config.clone(), codec: self.codec }
    }
}

impl<T> fmt::Debug for Topic<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.config.fmt(f)
    }
}

/// A topic's share of a listener's concurrency slots while several topics have due work. See [`Topic::priority`].
///
/// ```
/// use keylapse::{Priority, Topic};
///
/// let payments = Topic::<u64>::new("payment:expiry:{id}")?.priority(Priority::High);
/// let reminders = Topic::<String>::new("cart:reminder:{id}")?.priority(Priority::Low);
/// assert_eq!(Priority::default(), Priority::Normal);
/// # Ok::<(), keylapse::Error>(())
/// ```
///
/// [`Topic::priority`]: crate::Topic::priority
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Priority {
    /// Six slots for each three of a normal topic and each one of a low topic.
    High,
    /// Three slots for each six of a high topic and each one of a low topic.
    #[default]
    Normal,
    /// One slot for each six of a high topic and each three of a normal topic.
    Low,
}

impl Priority {
    /// Returns the share of slots, relative to other priorities.
    pub(crate) const fn weight(self) -> usize {
        match self {
            Self::High => 6,
            Self::Normal => 3,
            Self::Low => 1,
        }
    }

    /// Returns how far a topic's turn moves with each slot that it takes. The topic with the earliest turn is next.
    pub(crate) const fn stride(self) -> u64 {
        6 / self.weight() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_the_weight_has_half_the_stride() {
        let all = [Priority::High, Priority::Normal, Priority::Low];
        assert_eq!(all.map(|priority| priority.weight() as u64 * priority.stride()), [6; 3]);
        assert_eq!(all.map(Priority::weight), [6, 3, 1]);
    }
}
