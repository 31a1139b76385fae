//! What producers and handlers agree on.

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

/// A kind of timer: its name, the pattern of its keys, the type of its payload,
/// and how its attempts are made.
///
/// Producers and listeners share one definition. What only listeners use
/// (retries, limits) may differ between programs; name, pattern, partitions and
/// payload may not.
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
    /// A topic whose payloads are written as JSON.
    ///
    /// Its name is the pattern's literal prefix with `.` for `:`; a pattern
    /// without one needs [`named`](Topic::named), and so does one whose prefix is
    /// changed later: timers wait under the name that they were armed with. A
    /// listener warns at its start of such as nobody serves.
    ///
    /// # Errors
    /// When the pattern cannot be read, or gives no name.
    pub fn new(pattern: &str) -> Result<Self> {
        Ok(Self { config: TopicConfig::new(pattern, None)?, codec: Codec::JSON })
    }

    /// A topic with a name of its own, which stays when the pattern changes.
    ///
    /// # Errors
    /// When the pattern or the name (`[A-Za-z0-9_.-]{1,128}`) cannot be read.
    pub fn named(name: &str, pattern: &str) -> Result<Self> {
        Ok(Self { config: TopicConfig::new(pattern, Some(name))?, codec: Codec::JSON })
    }
}

impl Topic<Bytes> {
    /// A topic whose payloads are bytes, as they are.
    ///
    /// # Errors
    /// As for [`new`](Topic::new).
    pub fn raw(pattern: &str) -> Result<Self> {
        Ok(Self { config: TopicConfig::new(pattern, None)?, codec: Codec::RAW })
    }

    /// A topic of bytes with a name of its own.
    ///
    /// # Errors
    /// As for [`named`](Topic::named).
    pub fn raw_named(name: &str, pattern: &str) -> Result<Self> {
        Ok(Self { config: TopicConfig::new(pattern, Some(name))?, codec: Codec::RAW })
    }
}

impl<T> Topic<T> {
    fn with(mut self, change: impl FnOnce(&mut TopicConfig)) -> Self {
        change(&mut self.config);
        self
    }

    /// How long to wait after failed attempts. Default: exponential from 1 s to
    /// 10 min with full jitter.
    pub fn retry(self, backoff: Backoff) -> Self {
        self.with(|all| all.backoff = backoff)
    }

    /// After how many failed attempts a timer ends in the dead letters.
    /// Default: where the backoff's table ends, else 10.
    pub fn max_attempts(self, attempts: u32) -> Self {
        self.with(|all| all.max_attempts = Some(attempts))
    }

    /// How long after its first deadline a timer that keeps failing or snoozing
    /// ends in the dead letters. Default: 30 days.
    pub fn max_age(self, age: Duration) -> Self {
        self.with(|all| all.max_age = age)
    }

    /// How often a timer may be snoozed before it ends in the dead letters; with
    /// `u16::MAX` any number of times, until [`max_age`](Self::max_age).
    /// Default: 1,000.
    pub fn max_snoozes(self, snoozes: u16) -> Self {
        self.with(|all| all.max_snoozes = snoozes)
    }

    /// The longest delay that can be asked for; longer ones are refused, as nobody
    /// would notice before they should have run: mostly milliseconds were taken for
    /// seconds. Default: 10 years, at most 100.
    pub fn max_delay(self, delay: Duration) -> Self {
        self.with(|all| all.max_delay = delay)
    }

    /// For how long a timer is put off whose payload is not of this topic's type, from
    /// 1 s to 5 min at a time and without using up an attempt, before it becomes a dead
    /// letter: while a program is being replaced, one of the other version can read it.
    /// Default: 1 h; 0 lets it die at once.
    pub fn undecodable_for(self, time: Duration) -> Self {
        self.with(|all| all.undecodable_for = time)
    }

    /// How long an attempt may take; longer ones are stopped and count as
    /// failed. Default: 60 s.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.with(|all| all.timeout = timeout)
    }

    /// For how long a claim holds a timer. Leases are renewed at a third; after
    /// a crash another listener takes over within this and about a second.
    /// Default: 30 s, at least 0.3 s.
    pub fn lease(self, lease: Duration) -> Self {
        self.with(|all| all.lease = lease)
    }

    /// How far ahead of their deadline timers are claimed and then held, so that
    /// they start without a round trip. They never start early. Default: 10 ms,
    /// at most 1 s; 0 turns it off.
    pub fn lookahead(self, lookahead: Duration) -> Self {
        self.with(|all| all.lookahead = lookahead)
    }

    /// How many attempts of this topic one listener runs at a time.
    /// Default: 100.
    pub fn concurrency(self, attempts: usize) -> Self {
        self.with(|all| all.concurrency = attempts)
    }

    /// How much of a listener's places this topic gets when more than one of its topics has due work: 6 for each 3 of
    /// a normal one and each 1 of a low one. What one has no use for goes to the others. Default: `Priority::Normal`.
    ///
    /// So a low topic is served slowly, but always served;
    /// [`strict_priorities`](crate::ListenerBuilder::strict_priorities) lets it wait instead. A topic that has had
    /// nothing to do starts at once, whatever its priority, in the place that the listener keeps for it
    /// ([`ListenerBuilder::concurrency`](crate::ListenerBuilder::concurrency)). Running attempts are never interrupted,
    /// and places are counted, not the time for which they are taken.
    pub fn priority(self, priority: Priority) -> Self {
        self.with(|all| all.priority = priority)
    }

    /// Over how many partitions the topic is spread: each has an index and a
    /// slot of a cluster of its own. Default: 1, at most 1,024.
    ///
    /// In a cluster take at least twice as many as there are primaries, so that each
    /// has some, and a further one can take some over; elsewhere one will do. All
    /// programs must say the same number: others are refused with
    /// [`Partitions`](crate::ErrorKind::Partitions). A topic in use gets another one by
    /// `Console::repartition` of `keylapse-console`, or `keylapse partitions`; after that all
    /// programs are started again with it.
    pub fn partitions(self, partitions: u32) -> Self {
        self.with(|all| all.partitions = partitions)
    }

    /// Whether timers have a trigger key that other programs can see and hear
    /// expire. Without, a timer costs about 120 bytes less. Default: yes.
    pub fn triggers(self, triggers: bool) -> Self {
        self.with(|all| all.triggers = triggers)
    }

    /// The largest payload, in bytes; larger ones are refused. Default: 64 KiB,
    /// at most 8 MiB.
    pub fn payload_limit(self, bytes: usize) -> Self {
        self.with(|all| all.payload_limit = bytes)
    }

    /// How many dead letters each partition keeps, and for how long; the oldest
    /// make room, which is counted and logged. Default: 10,000 and 90 days.
    pub fn dead_letters(mut self, count: u64, age: Duration) -> Self {
        self.config.letters.count = count;
        self.config.letters.age_ms = ms_ceil(age);
        self
    }

    /// Names the places that the topic's handlers call, such as hosts. Listeners report how each of them is, and operators see by whom work is
    /// held back. Default: nothing is reported.
    pub fn destinations(self, all: Arc<dyn Destinations>) -> Self {
        self.with(|config| config.destinations = Some(all))
    }

    /// Pauses the topic when its dead letters are full, rather than trimming.
    pub fn pause_when_dead_letters_are_full(self) -> Self {
        self.with(|all| all.letters.pause_when_full = true)
    }

    /// How many ended timers each partition keeps in its journal, and for how long: done, cancelled, replaced or dead.
    /// So an operator can see what became of a key. The oldest make room. Default: nothing is kept.
    ///
    /// It costs the server some microseconds for each end, and about 130 bytes and the key for each that is kept. A topic
    /// that has a journal keeps it until a program says `journal(0, Duration::ZERO)`: one that says nothing changes
    /// nothing, and of two that say different things the last to start has its way. At most 1,000,000.
    pub fn journal(self, count: u64, age: Duration) -> Self {
        self.with(|all| {
            all.journal = Some(JournalBounds { count, age_ms: ms_ceil(age).min(MAX_DEADLINE_MS - 1) });
        })
    }

    /// Reads a record's payload; of an attached topic the copy of the key's value.
    pub(crate) fn decode(&self, payload: &Bytes) -> Result<T> {
        if let (Some(_), Some(read), Some(fields)) =
            (&self.config.attach, self.codec.fields, fields_of(payload))
        {
            return read(&fields);
        }
        (self.codec.decode)(self.config.own_payload(payload.clone()))
    }

    /// The topic's name.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// The pattern of its keys.
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

/// How much of a listener's places a topic gets while others have due work, too. See [`Topic::priority`].
///
/// [`Topic::priority`]: crate::Topic::priority
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Priority {
    /// Six places for each three of a normal topic and each one of a low one.
    High,
    /// Three places for each six of a high topic and each one of a low one.
    #[default]
    Normal,
    /// One place for each six of a high topic and each three of a normal one.
    Low,
}

impl Priority {
    /// Its places, in proportion to those of others.
    pub(crate) const fn weight(self) -> usize {
        match self {
            Self::High => 6,
            Self::Normal => 3,
            Self::Low => 1,
        }
    }

    /// How far its turn moves on with each place: the less, the sooner it is the topic's turn again.
    pub(crate) const fn stride(self) -> u64 {
        6 / self.weight() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_twice_the_weight_goes_half_as_far() {
        let all = [Priority::High, Priority::Normal, Priority::Low];
        assert_eq!(all.map(|priority| priority.weight() as u64 * priority.stride()), [6; 3]);
        assert_eq!(all.map(Priority::weight), [6, 3, 1]);
    }
}
