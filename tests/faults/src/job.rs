//! What the timers of a run are for.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use keylapse::{Attached, Backoff, Topic};
use keylapse_wire::names::{PartitionNames, partition_of};
use serde::{Deserialize, Serialize};

/// How far ahead timers of [`Kind::Quiet`] are claimed at most.
const AHEAD: Duration = Duration::from_secs(1);
/// Attempts that a job has.
pub const ATTEMPTS: u32 = 3;
/// From a failed attempt to the next one.
pub const RETRY_AFTER: Duration = Duration::from_millis(200);
/// Leases that an attempt may lose before its timer is buried: two beside others, two in a group, one alone.
pub const LEASES: usize = 5;
/// A call is made again when it has waited for its answer for the lease divided by this: while the lease still lasts.
pub const ANSWERS_IN_A_LEASE: u32 = 4;
/// Partitions of the topic whose timers have trigger keys.
const PARTITIONS: u32 = 2;
/// Numbers that each producer process has for its armings.
pub const NUMBERS: u64 = 1_000_000;
/// Enough for each of three primaries to have some.
const SHARDED: u32 = 8;
/// The same of the topic of orders.
const ORDERS: u32 = 4;
/// All partitions of a run with several servers: those of timers, and then those of orders.
pub const SHARDS: u32 = SHARDED + ORDERS;

/// The payload: which arming it belongs to, and what its handler does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The number of the arming, unique in a run.
    pub n: u64,
    /// What becomes of it.
    pub work: Work,
    /// How long an attempt takes.
    pub millis: u64,
}

/// What a handler does at the end of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// It succeeds.
    Succeed,
    /// It fails the first time.
    FailOnce,
    /// It panics the first time.
    PanicOnce,
    /// It fails each time.
    Fail,
    /// It takes its process down each time: a poison pill.
    Abort,
    /// It first ends when it is told that its lease is lost, and succeeds when it runs again.
    UntilLost,
}

impl Work {
    /// Whether the timer is to end in the dead letters.
    pub fn is_deadly(self) -> bool {
        matches!(self, Self::Fail | Self::Abort)
    }
}

/// The topics of a run; `Sharded` is that of runs with several servers, which have no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// With trigger keys, in two partitions.
    Loud,
    /// Without trigger keys, in one partition.
    Quiet,
    /// With trigger keys, in eight partitions.
    Sharded,
}

impl Kind {
    /// Those of a run with one server.
    pub const ALL: [Self; 2] = [Self::Loud, Self::Quiet];

    /// The topic, which producers and listeners share.
    pub fn topic(self, lease: Duration) -> Topic<Job> {
        let (name, partitions) = (self.name(), self.partitions());
        Topic::named(name, &format!("{name}:{{id}}"))
            .expect("a topic")
            .partitions(partitions)
            .marker_keys(self != Self::Quiet)
            .max_attempts(ATTEMPTS)
            .retry(Backoff::fixed(RETRY_AFTER))
            .lease(lease)
            .lookahead(self.lookahead(lease))
            .dead_letters(1_000_000, Duration::from_secs(24 * 3600))
    }

    /// Long for one of them, so that faults meet timers that are claimed and have not begun.
    fn lookahead(self, lease: Duration) -> Duration {
        match self {
            Self::Quiet => (lease / 4).min(AHEAD),
            Self::Loud | Self::Sharded => Duration::from_millis(10),
        }
    }

    /// The topic's name, and the first segment of its keys.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loud => "loud",
            Self::Quiet => "quiet",
            Self::Sharded => "sharded",
        }
    }

    /// In how many parts its index is kept.
    pub fn partitions(self) -> u32 {
        match self {
            Self::Loud => PARTITIONS,
            Self::Quiet => 1,
            Self::Sharded => SHARDED,
        }
    }
}

/// Of all [`SHARDS`], the one that keeps what is known of a key; none if it is of another kind of run.
pub fn shard_of(key: &str) -> Option<u32> {
    if is_order(key) {
        return Some(SHARDED + partition_of(key.as_bytes(), ORDERS));
    }
    let is_ours = key.split_once(':').is_some_and(|(topic, _)| topic == Kind::Sharded.name());
    is_ours.then(|| partition_of(key.as_bytes(), SHARDED))
}

/// Those of all [`SHARDS`] that keep what is known of orders.
pub fn shards_of_orders() -> Range<u32> {
    SHARDED..SHARDS
}

/// The names of one of all [`SHARDS`].
pub fn shard(place: u32) -> PartitionNames {
    match place.checked_sub(SHARDED) {
        None => PartitionNames::new("keylapse", Kind::Sharded.name(), place, SHARDED, false),
        Some(place) => PartitionNames::new("keylapse", "orders", place, ORDERS, true),
    }
}

/// The keys that other programs write in runs with several servers.
pub const ORDER: &str = "app:order:";

/// Whether it is one of them.
pub fn is_order(key: &str) -> bool {
    key.starts_with(ORDER)
}

/// Their topic.
pub fn orders(lease: Duration) -> Attached<Bytes> {
    let topic = Topic::raw_named("orders", &format!("{ORDER}{{id}}")).expect("a topic");
    let topic =
        topic.partitions(ORDERS).max_attempts(ATTEMPTS).retry(Backoff::fixed(RETRY_AFTER)).lease(lease);
    Attached::new(topic).keep_values(64).scan_every(Duration::from_secs(2))
}

/// The key of a producer process's arming of [`Kind::Sharded`]: each has its own.
pub fn sharded_key(place: u64, number: u64) -> String {
    format!("{}:{place}-{number}", Kind::Sharded.name())
}

/// The number of the arming of such a key.
pub fn number_of(key: &str) -> Option<u64> {
    let (_, id) = key.split_once(':')?;
    let (place, number) = id.split_once('-')?;
    Some(place.parse::<u64>().ok()? * NUMBERS + number.parse::<u64>().ok()?)
}

/// The attached topic of a run, and the first segment of its keys.
pub const ATTACHED: &str = "foreign";

/// The topic of keys that other programs write, in as many partitions as the loud one. A scan is never far.
pub fn attached(lease: Duration) -> Attached<Bytes> {
    let topic = Topic::raw_named(ATTACHED, &format!("{ATTACHED}:{{id}}")).expect("a topic");
    let topic =
        topic.partitions(PARTITIONS).max_attempts(ATTEMPTS).retry(Backoff::fixed(RETRY_AFTER)).lease(lease);
    Attached::new(topic).keep_values(256).scan_every(Duration::from_millis(300))
}

/// The partitions of all topics, by the names that docs/internals/wire.md gives them.
pub fn partitions() -> impl Iterator<Item = String> {
    let managed = Kind::ALL.into_iter().map(|kind| (kind.name(), kind.partitions()));
    let all = managed.chain([(ATTACHED, PARTITIONS)]);
    all.flat_map(|(name, count)| (0..count).map(move |place| format!("keylapse:{{{name}/{place}}}")))
}
