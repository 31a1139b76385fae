//! How evenly the partitions of a topic fall on the primaries of a cluster.

use keylapse_connection::slot_of;

/// How many slots a cluster has.
const SLOTS: usize = 16_384;

/// How many partitions of a topic each primary has, where the slots are dealt out evenly and in order.
fn shares(topic: &str, partitions: u32, primaries: usize) -> Vec<u32> {
    let mut shares = vec![0; primaries];
    for partition in 0..partitions {
        shares[owner(format!("{topic}/{partition}").as_bytes(), primaries)] += 1;
    }
    shares
}

/// Which primary has a key, counted from 0, where the slots are dealt out evenly and in order.
pub fn owner(key: &[u8], primaries: usize) -> usize {
    owner_of_slot(usize::from(slot_of(key)), primaries)
}

/// The last of those that begin at or before the slot.
fn owner_of_slot(slot: usize, primaries: usize) -> usize {
    ((slot + 1) * primaries).div_ceil(SLOTS) - 1
}

/// How many times its even share the busiest primary has.
pub fn busiest(topic: &str, partitions: u32, primaries: usize) -> f64 {
    let most = shares(topic, partitions, primaries).into_iter().max().unwrap_or_default();
    f64::from(most) * primaries as f64 / f64::from(partitions)
}

/// Whether each primary has as many as any other.
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
        // 5,461.33 slots each. `CLUSTER KEYSLOT` says that `foo` is in 12,182 and `bar` in 5,061.
        assert_eq!((owner(b"foo", 3), owner(b"bar", 3), owner(b"foo", 1)), (2, 0, 0));
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
