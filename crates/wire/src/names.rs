//! Every name that keylapse uses in Redis, in one place.
//!
//! A partition's names share one hash tag, `{<topic>/<partition>}`, so that a
//! script runs in one slot of a cluster. See docs/wire.md.

use std::fmt;
use std::sync::{Arc, LazyLock};

use crate::connection::{CLUSTER_SLOTS, hash_tag, slot_of};
use crate::error::{Error, ErrorKind, Result};
use crate::escape::Escaped;

/// The prefix of every name, unless another one is chosen.
pub const DEFAULT_NAMESPACE: &str = "keylapse";

/// The version of the wire format that this library speaks.
pub const WIRE_VERSION: u32 = 5;

/// What stands in the place of the version while a topic is destroyed.
pub(super) const DESTROYING: &str = "destroying";

/// The same while it gets another number of partitions.
pub(super) const REPARTITIONING: &str = "repartitioning";

/// The most partitions a topic can have.
pub const MAX_PARTITIONS: u32 = 1024;

/// A partition's names and the types of what they hold, in the order of docs/wire.md. Scripts' headers call
/// their KEYS by these names.
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

/// One partition of a topic, with all its names. Cheap to clone.
#[derive(Clone)]
pub struct PartitionNames(Arc<Names>);

/// What [`PartitionNames`] share.
#[derive(Debug)]
pub struct Names {
    /// What all of them begin with.
    pub namespace: String,
    /// The topic.
    pub topic: String,
    /// Which partition of the topic, from 0.
    pub index: u32,
    /// How many partitions the topic has.
    pub partitions: u32,
    /// Whether other programs write the topic's keys.
    pub attached: bool,
    /// The channel of its wake-ups and fences.
    pub wake: String,
    /// Where all of them lie in a cluster.
    pub slot: u16,
    names: [String; NAMES.len()],
}

impl PartitionNames {
    /// The names of partition `index` of `of` partitions of a topic.
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
    /// The key of one of [`NAMES`].
    ///
    /// # Panics
    /// For another name.
    pub fn key(&self, name: &str) -> &str {
        &self.names[place_of(name).unwrap_or_else(|| panic!("no partition has {name}"))]
    }

    /// What `meta` and calls say of who writes its keys.
    pub(super) fn kind(&self) -> &'static str {
        if self.attached { "attached" } else { "managed" }
    }

    /// Refuses a topic that is of another kind in Redis.
    pub(super) fn check_kind(&self, there: &[u8]) -> Result<()> {
        if there == self.kind().as_bytes() {
            return Ok(());
        }
        let message = if self.attached {
            "is managed by keylapse in Redis, and cannot be attached to; give one of the two another name"
        } else {
            "is attached in Redis: other programs write its keys, and a timer is armed by writing one"
        };
        Err(Error::new(ErrorKind::Conflict, format!("topic {} {message}", self.topic)))
    }

    /// All keys, in the order of [`NAMES`].
    pub fn all(&self) -> &[String] {
        &self.names
    }
}

/// Where a name stands in [`NAMES`].
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

/// FNV-1a, 64 bits.
pub fn fnv1a(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The partition of a key: FNV-1a (64 bits) of its bytes, modulo the number of
/// partitions.
pub fn partition_of(key: &[u8], partitions: u32) -> u32 {
    if partitions <= 1 {
        return 0;
    }
    let index = fnv1a(key.iter().copied()) % u64::from(partitions);
    u32::try_from(index).expect("it is below `partitions`")
}

/// Whether a key could be one of the names of this namespace.
pub fn is_own(namespace: &str, key: &[u8]) -> bool {
    key.strip_prefix(namespace.as_bytes()).is_some_and(|rest| rest.starts_with(b":"))
}

/// The hash that lists the topics.
pub fn registry(namespace: &str) -> String {
    format!("{namespace}:topics")
}

/// The hash in which listeners say how they are.
pub fn listeners(namespace: &str) -> String {
    format!("{namespace}:listeners")
}

/// Remembers that something was put into a list or a stream that is not ours. It lies in the slot of that, as do others
/// with the same tag: so it names the whole, and how long that is.
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

/// What names the last canary of a primary; a canary's own name is this, a colon and what it says: its number, a colon,
/// its predecessor's. The tag of a server that is alone is 0; in a cluster it is one that lies in a slot of the
/// primary's, see [`tag_of`].
pub fn canary(namespace: &str, tag: u32) -> String {
    format!("{}{tag}}}", canary_prefix(namespace))
}

/// The least number that lies in a slot, as the hash tag `heartbeat/<number>`.
pub fn tag_of(slot: u16) -> u32 {
    TAGS[usize::from(slot)]
}

/// About 170,000 numbers have to be tried until each slot has one, which takes a few milliseconds, once.
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

/// What the names of all canaries begin with, up to the tag.
pub fn canary_prefix(namespace: &str) -> String {
    format!("{namespace}:{{heartbeat/")
}

/// The channel on which a database publishes the keys that expire.
pub fn expired_channel(db: i64) -> String {
    format!("__keyevent@{db}__:expired")
}

/// What the channels of a database's keys begin with; each key has its own.
pub fn keyspace_channel(db: i64) -> String {
    format!("__keyspace@{db}__:")
}

/// Refuses namespaces and topic names that would end the hash tag early.
pub fn check_name(what: &str, name: &str) -> Result<()> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if name.is_empty() || name.len() > 128 || !name.chars().all(fine) {
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

    /// As a cluster would: there, all of these lie in one slot.
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
        assert_eq!(tag_of(slot_of(b"heartbeat/0")), 0, "a server that is alone uses the first");
    }
}
