//! All names that keylapse uses in Redis.
//!
//! The names of a partition share the hash tag `{<topic>/<partition>}`, so that a script runs in one slot of a Redis
//! Cluster. See docs/internals/wire.md.

use std::fmt;
use std::sync::{Arc, LazyLock};

use crate::connection::{CLUSTER_SLOTS, hash_tag, slot_of};
use crate::error::{Error, ErrorKind, Result};
use crate::escape::Escaped;

/// The default namespace, which is the prefix of every name.
pub const DEFAULT_NAMESPACE: &str = "keylapse";

/// The version of the wire format that this library reads and writes.
pub const WIRE_VERSION: u32 = 5;

/// The value of the version field while a topic is destroyed.
pub(super) const DESTROYING: &str = "destroying";

/// The value of the version field while a topic is repartitioned.
pub(super) const REPARTITIONING: &str = "repartitioning";

/// The maximum number of partitions of a topic.
pub const MAX_PARTITIONS: u32 = 1024;

/// The names of a partition and the types of their values, in the order of docs/internals/wire.md. The headers of
/// scripts use these names for their KEYS.
pub const NAMES: [(&str, &str); 18] = [
    ("meta", "hash"),
    ("due", "zset"),
    ("quarantine", "zset"),
    ("timers", "hash"),
    ("timer_states", "hash"),
    ("queued", "hash"),
    ("tombstones", "zset"),
    ("dead", "zset"),
    ("dead_letters", "hash"),
    ("claimers", "hash"),
    ("tracked", "hash"),
    ("values", "hash"),
    ("checks", "zset"),
    ("expiry_history", "hash"),
    ("expiry_history_old", "hash"),
    ("duties", "hash"),
    ("journal", "zset"),
    ("tried", "zset"),
];

/// A partition of a topic, with all its names. Cheap to clone.
#[derive(Clone)]
pub struct PartitionNames(Arc<Names>);

/// The data that clones of [`PartitionNames`] share.
#[derive(Debug)]
pub struct Names {
    /// The prefix of all names.
    pub namespace: String,
    /// The topic.
    pub topic: String,
    /// The index of the partition, from 0.
    pub index: u32,
    /// The number of partitions of the topic.
    pub partitions: u32,
    /// True if other programs write the topic's keys.
    pub attached: bool,
    /// The channel of messages: wake-ups and fences for listeners, and the tail for programs that watch.
    pub wake: String,
    /// The slot of all names in a Redis Cluster.
    pub slot: u16,
    names: [String; NAMES.len()],
}

impl PartitionNames {
    /// Returns the names of partition `index` of a topic with `of` partitions.
    pub fn new(namespace: &str, topic: &str, index: u32, of: u32, attached: bool) -> Self {
        let name = |what: &str| format!("{namespace}:{{{topic}/{index}}}:{what}");
        Self(Arc::new(Names {
            namespace: namespace.to_owned(),
            topic: topic.to_owned(),
            index,
            partitions: of,
            attached,
            slot: slot_of(name("wake").as_bytes()),
            wake: name("wake"),
            names: NAMES.map(|(what, _)| name(what)),
        }))
    }
}

impl Names {
    /// Returns the Redis key of one of [`NAMES`].
    ///
    /// # Panics
    /// If `name` is not in [`NAMES`].
    pub fn key(&self, name: &str) -> &str {
        &self.names[place_of(name).unwrap_or_else(|| panic!("no partition has a name {name}"))]
    }

    /// Returns the kind of the topic, as in `meta` and in calls.
    pub(super) fn kind(&self) -> &'static str {
        if self.attached { "attached" } else { "managed" }
    }

    /// Returns an error if the topic is of the other kind in Redis, where `stored` is its kind.
    pub(super) fn check_kind(&self, stored: &[u8]) -> Result<()> {
        if stored == self.kind().as_bytes() {
            return Ok(());
        }
        let message = if self.attached {
            "is a managed topic in Redis, not an attached one: give one of the two another name"
        } else {
            "is an attached topic in Redis: other programs write its keys, so arm a timer by writing its key"
        };
        Err(Error::new(ErrorKind::Conflict, format!("topic {} {message}", self.topic)))
    }

    /// Returns all keys, in the order of [`NAMES`].
    pub fn all(&self) -> &[String] {
        &self.names
    }
}

/// Returns the position of a name in [`NAMES`].
pub(super) fn place_of(name: &str) -> Option<usize> {
    NAMES.iter().position(|(known, _)| *known == name)
}

impl std::ops::Deref for PartitionNames {
    type Target = Names;

    fn deref(&self) -> &Names {
        &self.0
    }
}

impl fmt::Debug for PartitionNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, self.index)
    }
}

/// Returns the 64-bit FNV-1a hash.
pub fn fnv1a(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Returns the partition of a key: the 64-bit FNV-1a hash of its bytes, modulo the number of partitions.
pub fn partition_of(key: &[u8], partitions: u32) -> u32 {
    if partitions <= 1 {
        return 0;
    }
    let index = fnv1a(key.iter().copied()) % u64::from(partitions);
    u32::try_from(index).expect("the remainder is below `partitions`")
}

/// Returns whether a key begins with the namespace and a colon, as all names of keylapse do.
pub fn is_own(namespace: &str, key: &[u8]) -> bool {
    key.strip_prefix(namespace.as_bytes()).is_some_and(|rest| rest.starts_with(b":"))
}

/// Returns the name of the hash that lists the topics.
pub fn registry(namespace: &str) -> String {
    format!("{namespace}:topics")
}

/// Returns the name of the hash that holds the reports of listeners.
pub fn listeners(namespace: &str) -> String {
    format!("{namespace}:listeners")
}

/// Returns the name of the key that records an addition to another program's list or stream.
///
/// Both keys are in one slot, because they share a hash tag. Several lists can share a tag, so the name also has the whole
/// name of the list and its length.
pub fn forwarded(namespace: &str, into: &[u8], id: &str) -> Vec<u8> {
    let (tag, length) = (hash_tag(into).unwrap_or(into), into.len().to_string());
    let words: [&[u8]; 9] = [
        namespace.as_bytes(),
        b":{",
        tag,
        b"}:forwarded:",
        length.as_bytes(),
        b":",
        into,
        b":",
        id.as_bytes(),
    ];
    words.concat()
}

/// Returns the name of the string that names a primary's last heartbeat key.
///
/// The heartbeat key itself has this name, a colon, and the value of the string: its number, a colon and the number before
/// it. The tag of a single server is 0. In a Redis Cluster the tag is in a slot of the primary, see [`tag_of`].
pub fn canary(namespace: &str, tag: u32) -> String {
    format!("{}{tag}}}", canary_prefix(namespace))
}

/// Returns the lowest number whose hash tag `heartbeat/<number>` is in this slot.
pub fn tag_of(slot: u16) -> u32 {
    TAGS[usize::from(slot)]
}

/// The tag of each slot. About 170,000 numbers are tried to find them, which takes a few milliseconds, once.
static TAGS: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let mut tags = vec![None; usize::from(CLUSTER_SLOTS)];
    let mut missing = tags.len();
    for number in 0_u32.. {
        let tag = &mut tags[usize::from(slot_of(format!("heartbeat/{number}").as_bytes()))];
        if tag.is_none() {
            *tag = Some(number);
            missing -= 1;
        }
        if missing == 0 {
            break;
        }
    }
    tags.into_iter().map(Option::unwrap_or_default).collect()
});

/// Returns the prefix of the names of all heartbeat keys, up to the tag.
pub fn canary_prefix(namespace: &str) -> String {
    format!("{namespace}:{{heartbeat/")
}

/// Returns the channel on which a database publishes expired keys.
pub fn expired_channel(db: i64) -> String {
    format!("__keyevent@{db}__:expired")
}

/// Returns the prefix of the channels of a database's keys. Each key has its own channel.
pub fn keyspace_channel(db: i64) -> String {
    format!("__keyspace@{db}__:")
}

/// Returns an error unless a namespace or topic name has 1 to 128 allowed characters. Others could end the hash tag early.
pub fn check_name(what: &str, name: &str) -> Result<()> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if name.is_empty() || name.len() > 128 || !name.chars().all(is_allowed) {
        return Err(Error::invalid(format!(
            "{what} {} must have 1 to 128 characters out of A-Z a-z 0-9 _ . -",
            Escaped(name.as_bytes())
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_of_a_partition_share_one_hash_tag() {
        let partition = PartitionNames::new("keylapse", "orders.v2", 3, 4, false);
        for name in partition.all().iter().chain([&partition.wake]) {
            let (_, rest) = name.split_once('{').unwrap();
            assert_eq!(rest.split_once('}').unwrap().0, "orders.v2/3");
            assert_eq!(slot_of(name.as_bytes()), partition.slot);
        }
    }

    #[test]
    fn the_partition_hash_is_fixed_for_ever() {
        // Reference values of FNV-1a 64: http://www.isthe.com/chongo/tech/comp/fnv/
        assert_eq!(partition_of(b"", 1024), 0xcbf2_9ce4_8422_2325_u64 as u32 % 1024);
        assert_eq!(partition_of(b"foobar", 1024), 0x8594_4171_f739_67e8_u64 as u32 % 1024);
        assert_eq!(partition_of(b"anything", 1), 0);
    }

    /// A Redis Cluster maps all of these keys to one slot.
    #[test]
    fn a_hash_tag_in_a_key_does_not_choose_its_partition() {
        let partitions: std::collections::BTreeSet<_> =
            (0..100).map(|n| partition_of(format!("app:{{tag}}:{n}").as_bytes(), 8)).collect();
        assert_eq!(partitions.len(), 8);
    }

    #[test]
    fn only_what_the_namespace_begins_is_our_own() {
        for own in [
            &registry("ns")[..],
            &listeners("ns"),
            &canary("ns", 0),
            PartitionNames::new("ns", "a", 0, 1, false).key("due"),
            "ns:",
        ] {
            assert!(is_own("ns", own.as_bytes()), "{own}");
        }
        for other in ["", "ns", "ns2:x", "app:ns:x", "NS:x"] {
            assert!(!is_own("ns", other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn names_that_would_break_the_tag_are_refused() {
        for bad in ["", "a{b", "a}b", "a b", "ä", "a:b", "a/b", "a\n"] {
            assert!(check_name("topic", bad).is_err(), "{bad:?}");
        }
        assert!(check_name("topic", "app.trans-notice_1").is_ok());
    }

    #[test]
    fn each_slot_has_a_canary_that_lies_in_it() {
        for slot in 0..CLUSTER_SLOTS {
            assert_eq!(slot_of(canary("keylapse", tag_of(slot)).as_bytes()), slot);
        }
        assert_eq!(tag_of(slot_of(b"heartbeat/0")), 0, "a single server uses the first");
    }
}
