//! The settings of a topic, without the type of its payload.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::Priority;
use crate::backoff::Backoff;
use crate::error::{Error, ErrorKind, Result};
use crate::escape::Escaped;
use crate::figures::Destinations;
use crate::limits::{MAX_KEY, MAX_PAYLOAD};
use crate::pattern::Pattern;
use crate::policy::Policy;
use crate::time::MAX_DELAY;
use crate::wire::{
    DeadLetterLimits, JournalBounds, MAX_PARTITIONS, PartitionNames, TopicEntry, check_name, is_own,
    partition_of, value_of,
};

/// The shortest lease that a topic can set.
pub const MIN_LEASE: Duration = Duration::from_millis(300);

/// The maximum number of journal entries in a partition.
const MAX_JOURNAL: u64 = 1_000_000;

/// The settings of a topic, without the type of its payload.
#[derive(Clone, Debug)]
pub struct TopicConfig {
    /// The topic's name.
    pub name: String,
    /// The pattern of its keys.
    pub pattern: Pattern,
    /// The number of its partitions.
    pub partitions: u32,
    /// If true, an arm also sets the timer's marker key, which expires at the deadline.
    pub marker_keys: bool,
    /// The backoff schedule of failed attempts.
    pub backoff: Backoff,
    /// After how many failed attempts a timer becomes a dead letter. `None`: as many as the backoff's table allows,
    /// else 10.
    pub max_attempts: Option<u32>,
    /// The maximum age of a timer, counted from its first deadline.
    pub max_age: Duration,
    /// How often a handler may snooze a timer.
    pub max_snoozes: u16,
    /// The longest delay of an arm.
    pub max_delay: Duration,
    /// How long a timer with an undecodable payload waits before it becomes a dead letter.
    pub undecodable_for: Duration,
    /// The longest duration of an attempt.
    pub timeout: Duration,
    /// The duration of a lease.
    pub lease: Duration,
    /// How long before its deadline a timer may be claimed.
    pub lookahead: Duration,
    /// How many attempts of the topic a listener runs at the same time.
    pub concurrency: usize,
    /// The topic's share of a listener's concurrency slots.
    pub priority: Priority,
    /// The largest payload, in bytes.
    pub payload_limit: usize,
    /// How many dead letters each partition keeps, and for how long.
    pub dead_letters: DeadLetterLimits,
    /// How many ended timers the journal keeps, and for how long. `None` leaves the setting of other programs
    /// unchanged.
    pub journal: Option<JournalBounds>,
    /// The policy of an attached topic.
    pub attach: Option<Policy>,
    /// The destinations that its handlers call.
    pub destinations: Option<Arc<dyn Destinations>>,
}

impl TopicConfig {
    /// Returns how long a listener trusts a lease, counted from when it sent the claim or renewal: nine tenths of the
    /// lease. The last tenth covers the time between reading the clock and acting on it.
    pub(crate) fn trusted_lease(&self) -> Duration {
        self.lease - self.lease / 10
    }

    /// Returns a record's payload without the header that precedes the value of an attached key.
    pub fn own_payload(&self, payload: Bytes) -> Bytes {
        if self.attach.is_some() { value_of(&payload) } else { payload }
    }

    pub(super) fn new(pattern: &str, name: Option<&str>) -> Result<Self> {
        let pattern = Pattern::new(pattern)?;
        let name = match name {
            Some(name) => name.to_owned(),
            None => pattern.default_name().ok_or_else(|| {
                Error::invalid(format!(
                    "pattern {pattern} gives the topic no name; choose one with Topic::named"
                ))
            })?,
        };
        check_name("topic", &name)?;
        Ok(Self {
            name,
            pattern,
            partitions: 1,
            marker_keys: true,
            backoff: Backoff::default(),
            max_attempts: None,
            max_age: Duration::from_secs(30 * 86_400),
            max_snoozes: 1000,
            max_delay: Duration::from_secs(10 * 365 * 86_400),
            undecodable_for: Duration::from_secs(3600),
            timeout: Duration::from_secs(60),
            lease: Duration::from_secs(30),
            lookahead: Duration::from_millis(10),
            concurrency: 100,
            priority: Priority::default(),
            payload_limit: 64 << 10,
            dead_letters: DeadLetterLimits { count: 10_000, age_ms: 90 * 86_400_000, pause_when_full: false },
            journal: None,
            attach: None,
            destinations: None,
        })
    }

    /// Returns the policy of an attached topic, or an error for other topics. `call` is the name of the calling
    /// function.
    pub fn policy_for(&self, call: &str) -> Result<&Policy> {
        self.attach.as_ref().ok_or_else(|| {
            Error::invalid(format!(
                "topic {}: {call} needs an attached topic; pass the result of Attached::topic()",
                self.name
            ))
        })
    }

    /// Rejects settings that cannot work. Setters return no errors, so that calls can be chained. Each call that uses
    /// the topic checks it.
    pub fn check(&self, namespace: &str) -> Result<()> {
        if is_own(namespace, self.pattern.literal_prefix().as_bytes()) {
            return Err(Error::invalid(format!(
                "topic {}: pattern {} matches only keylapse's own names, which begin with {namespace}:; \
                 choose another prefix for the keys, or another namespace",
                self.name, self.pattern
            )));
        }
        let lease = MIN_LEASE..=Duration::from_secs(86_400);
        let lookahead = self.lookahead <= Duration::from_secs(1) && self.lookahead < self.lease / 3;
        let letters = self.dead_letters.count > 0 && self.dead_letters.age_ms > 0;
        let journal =
            self.journal.is_none_or(|kept| kept.count == 0 || kept.count <= MAX_JOURNAL && kept.age_ms > 0);
        let rules = [
            ((1..=MAX_PARTITIONS).contains(&self.partitions), "partitions must be 1 to 1,024"),
            (self.max_attempts != Some(0), "max_attempts must be at least 1"),
            (self.concurrency > 0, "concurrency must be at least 1"),
            (self.max_delay <= MAX_DELAY, "max_delay must be at most 100 years"),
            (!self.timeout.is_zero(), "timeout must be more than zero"),
            (lease.contains(&self.lease), "lease must be 0.3 s to 1 day"),
            (lookahead, "lookahead must be at most 1 s and less than a third of the lease"),
            (self.payload_limit <= MAX_PAYLOAD, "payload_limit must be at most 8 MiB"),
            (letters, "dead_letters must be at least 1, with an age of more than zero"),
            (journal, "journal must be at most 1,000,000, with an age of more than zero"),
        ];
        Error::unless_kept(format_args!("topic {}", self.name), &rules)?;
        self.attach.as_ref().map_or(Ok(()), |policy| policy.check(&self.name, &self.pattern))
    }

    /// Returns after how many failed attempts a timer becomes a dead letter.
    pub fn attempts(&self) -> u32 {
        self.max_attempts.or(self.backoff.attempts()).unwrap_or(10)
    }

    /// Returns the topic's entry in the registry.
    pub fn entry(&self) -> TopicEntry {
        TopicEntry {
            name: self.name.clone(),
            pattern: self.pattern.as_str().to_owned(),
            partitions: self.partitions,
            marker_keys: self.marker_keys,
            attached: self.attach.is_some(),
        }
    }

    /// Returns the names of the topic's partitions.
    pub fn all_partitions(&self, namespace: &str) -> Vec<PartitionNames> {
        self.entry().all_partitions(namespace)
    }

    /// Returns the index of a key's partition.
    pub fn partition_of(&self, key: &[u8]) -> usize {
        partition_of(key, self.partitions) as usize
    }

    /// Rejects a key that is too long, that the pattern does not match, or that is one of keylapse's own names. A
    /// marker key with such a name would overwrite a partition's data.
    pub fn check_key(&self, namespace: &str, key: &[u8]) -> Result<()> {
        if key.len() > MAX_KEY {
            let message = format!("a key of {} bytes is over the limit of {MAX_KEY}", key.len());
            return Err(Error::new(ErrorKind::TooLarge, message).at_key(key));
        }
        if !self.pattern.is_match(key) {
            let message =
                format!("{} does not match pattern {} of topic {}", Escaped(key), self.pattern, self.name);
            return Err(Error::invalid(message));
        }
        if is_own(namespace, key) {
            let message =
                format!("names that begin with {namespace}: are keylapse's own and cannot be armed");
            return Err(Error::invalid(message).at_key(key));
        }
        Ok(())
    }

    /// Rejects a payload over the topic's limit.
    ///
    /// # Errors
    /// Returns an error of kind [`TooLarge`](ErrorKind::TooLarge).
    pub fn check_payload(&self, key: &[u8], payload: &[u8]) -> Result<()> {
        if payload.len() > self.payload_limit {
            let (size, limit, name) = (payload.len(), self.payload_limit, &self.name);
            let message = format!("a payload of {size} bytes is over the limit of {limit} of topic {name}");
            return Err(Error::new(ErrorKind::TooLarge, message).at_key(key));
        }
        Ok(())
    }
}
