//! Everything about a topic but the type of its payload.

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
    JournalBounds, LetterBounds, MAX_PARTITIONS, PartitionNames, TopicEntry, check_name, is_own,
    partition_of, value_of,
};

/// The shortest lease that a topic can set.
pub const MIN_LEASE: Duration = Duration::from_millis(300);

/// The most ends that a partition can keep.
const MAX_JOURNAL: u64 = 1_000_000;

/// Everything about a topic but the type of its payload.
#[derive(Clone, Debug)]
pub struct TopicConfig {
    /// The topic's name.
    pub name: String,
    /// How its keys look.
    pub pattern: Pattern,
    /// Into how many partitions its timers are divided.
    pub partitions: u32,
    /// If true, an arm also sets the timer's trigger key, which expires at the deadline.
    pub triggers: bool,
    /// How long to wait after failed attempts.
    pub backoff: Backoff,
    /// After how many failed attempts a timer dies; none: where the backoff's table ends, else 10.
    pub max_attempts: Option<u32>,
    /// How long after its first deadline a timer is tried.
    pub max_age: Duration,
    /// How often a handler may put off a timer.
    pub max_snoozes: u16,
    /// How far ahead a deadline may be.
    pub max_delay: Duration,
    /// How long a timer is kept whose payload the handler's type cannot be read from.
    pub undecodable_for: Duration,
    /// How long an attempt may take.
    pub timeout: Duration,
    /// How long a claim holds.
    pub lease: Duration,
    /// How long before its deadline a timer may be claimed.
    pub lookahead: Duration,
    /// How many attempts run at a time.
    pub concurrency: usize,
    /// Which topics' work comes first.
    pub priority: Priority,
    /// The largest payload, in bytes.
    pub payload_limit: usize,
    /// How many dead letters are kept, and for how long.
    pub letters: LetterBounds,
    /// How much of what has ended is kept; none: as another program has said.
    pub journal: Option<JournalBounds>,
    /// How its keys are treated, where other programs write them.
    pub attach: Option<Policy>,
    /// The places that its handlers call.
    pub destinations: Option<Arc<dyn Destinations>>,
}

impl TopicConfig {
    /// For how long a lease is trusted from when its claim or renewal was sent: a tenth of it is left for
    /// what happens between a look at the clock and what follows from it.
    pub(crate) fn trust(&self) -> Duration {
        self.lease - self.lease / 10
    }

    /// A record's payload without what is said before an attached key's value.
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
            triggers: true,
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
            letters: LetterBounds { count: 10_000, age_ms: 90 * 86_400_000, pause_when_full: false },
            journal: None,
            attach: None,
            destinations: None,
        })
    }

    /// How its keys are treated, for a call that is about keys of other programs.
    pub fn policy_for(&self, call: &str) -> Result<&Policy> {
        self.attach.as_ref().ok_or_else(|| {
            Error::invalid(format!(
                "topic {}: {call} is for topics whose keys other programs write; give it Attached::topic()",
                self.name
            ))
        })
    }

    /// Refuses settings that can never work. Setters do not, so that a topic
    /// can be built in one breath; each call that uses it asks.
    pub fn check(&self, namespace: &str) -> Result<()> {
        if is_own(namespace, self.pattern.literal_prefix().as_bytes()) {
            return Err(Error::invalid(format!(
                "topic {}: pattern {} matches only names that are keylapse's own, which begin with \
                 {namespace}:; choose another prefix for the keys, or another namespace",
                self.name, self.pattern
            )));
        }
        let lease = MIN_LEASE..=Duration::from_secs(86_400);
        let lookahead = self.lookahead <= Duration::from_secs(1) && self.lookahead < self.lease / 3;
        let letters = self.letters.count > 0 && self.letters.age_ms > 0;
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
            (letters, "dead_letters must be at least 1, kept for more than zero"),
            (journal, "journal must be at most 1,000,000, kept for more than zero"),
        ];
        Error::unless_kept(format_args!("topic {}", self.name), &rules)?;
        self.attach.as_ref().map_or(Ok(()), |policy| policy.check(&self.name, &self.pattern))
    }

    /// After how many failed attempts a timer becomes a dead letter.
    pub fn attempts(&self) -> u32 {
        self.max_attempts.or(self.backoff.attempts()).unwrap_or(10)
    }

    /// Returns what the registry has of it.
    pub fn entry(&self) -> TopicEntry {
        TopicEntry {
            name: self.name.clone(),
            pattern: self.pattern.as_str().to_owned(),
            partitions: self.partitions,
            triggers: self.triggers,
            attached: self.attach.is_some(),
        }
    }

    /// Returns the names of its partitions.
    pub fn all_partitions(&self, namespace: &str) -> Vec<PartitionNames> {
        self.entry().all_partitions(namespace)
    }

    /// Returns the place of the partition that has a key.
    pub fn partition_of(&self, key: &[u8]) -> usize {
        partition_of(key, self.partitions) as usize
    }

    /// Refuses a key that is too long, belongs to another topic, or is a name
    /// of ours: a trigger key written over one would take a partition down.
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
            let message = format!("keys that begin with {namespace}: are keylapse's own and cannot be armed");
            return Err(Error::invalid(message).at_key(key));
        }
        Ok(())
    }

    /// Refuses a payload over the topic's limit.
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
