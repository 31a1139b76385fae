//! How evenly the partitions of a topic fall on the primaries of a cluster.

use keylapse_connection::{CLUSTER_SLOTS, slot_of};
use keylapse_wire::names::{canary, tag_of};

/// Returns how many partitions of a topic each primary has, if slots are assigned evenly and in order.
fn shares(topic: &str, partitions: u32, primaries: usize) -> Vec<u32> {
    let mut shares = vec![0; primaries];
    for partition in 0..partitions {
        shares[owner(format!("{topic}/{partition}").as_bytes(), primaries)] += 1;
    }
    shares
}

/// Returns the primary of a key, counted from 0, if slots are assigned evenly and in order.
pub fn owner(key: &[u8], primaries: usize) -> usize {
    owner_of_slot(usize::from(slot_of(key)), primaries)
}

/// Returns a key for each slot.
pub fn key_in_each_slot() -> impl Iterator<Item = String> {
    (0..CLUSTER_SLOTS).map(|slot| canary("other", tag_of(slot)))
}

/// Returns the last primary whose slots begin at or before this slot.
fn owner_of_slot(slot: usize, primaries: usize) -> usize {
    ((slot + 1) * primaries).div_ceil(usize::from(CLUSTER_SLOTS)) - 1
}

/// Returns the share of the busiest primary as a multiple of an even share.
pub fn busiest(topic: &str, partitions: u32, primaries: usize) -> f64 {
    let largest = shares(topic, partitions, primaries).into_iter().max().unwrap_or_default();
    f64::from(largest) * primaries as f64 / f64::from(partitions)
}

/// Returns whether all primaries have equally many partitions.
pub fn is_even(topic: &str, partitions: u32, primaries: usize) -> bool {
    let shares = shares(topic, partitions, primaries);
    shares.iter().all(|share| *share == shares[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_partition_has_one_primary_that_has_its_slot() {
        assert_eq!(shares("app.order", 64, 1), [64]);
        assert_eq!(shares("app.order", 64, 7).iter().sum::<u32>(), 64);
        // A primary has 5,461.33 slots. `CLUSTER KEYSLOT` returns 12,182 for `foo` and 5,061 for `bar`.
        assert_eq!((owner(b"foo", 3), owner(b"bar", 3), owner(b"foo", 1)), (2, 0, 0));
        assert!(key_in_each_slot().map(|key| slot_of(key.as_bytes())).eq(0..CLUSTER_SLOTS));
        for (slot, owner) in [(0, 0), (5_460, 0), (5_461, 1), (10_921, 1), (10_922, 2), (16_383, 2)] {
            assert_eq!(owner_of_slot(slot, 3), owner, "{slot}");
        }
    }

    #[test]
    fn the_busiest_has_at_least_its_share_and_less_beyond_it_the_more_partitions_there_are() {
        let twice = busiest("app.order", 80, 40);
        let often = busiest("app.order", 1024, 40);
        assert!(twice >= often && often >= 1.0, "{twice} {often}");
        assert_eq!(busiest("app.order", 64, 1), 1.0);
        assert!(is_even("app.order", 64, 1) && !is_even("app.order", 64, 5));
    }
}
