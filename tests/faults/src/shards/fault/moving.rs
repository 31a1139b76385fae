//! Slots that move under load.

use std::collections::BTreeSet;

use keylapse_testing::{LocalCluster, LocalNode};

use super::super::{Group, Stage};
use crate::clock::now;
use crate::job::{ORDER, SHARDS, shard, sharded_key};
use crate::ledger::Entry;

/// The slots of all partitions, and then some that trigger keys and orders lie in, of which the first live now.
async fn slots(cluster: &LocalCluster, count: usize, order: u64) -> BTreeSet<u16> {
    let partitions = (0..SHARDS).map(|place| shard(place).key("due").to_owned());
    let keys = (0..).flat_map(|number| [sharded_key(0, number), format!("{ORDER}{}", order + number)]);
    let mut slots = BTreeSet::new();
    for key in partitions.chain(keys) {
        if slots.len() >= count {
            break;
        }
        slots.insert(cluster.slot_of(&key).await.expect("a node answers"));
    }
    slots
}

async fn another(cluster: &LocalCluster, slot: u16) -> LocalNode {
    let owner = cluster.owner_of_slot(slot).await.expect("somebody has it");
    let primaries = cluster.primaries().await.expect("some answer");
    let others: Vec<_> = primaries.into_iter().filter(|node| *node != owner).collect();
    others[usize::from(slot) % others.len()].clone()
}

pub(super) async fn strike(stage: &Stage, count: usize) {
    let Group::Cluster(cluster) = &stage.group else { return };
    let since = now();
    let as_one = cluster.can_move_slots_atomically().await.expect("a node answers");
    for (at, slot) in slots(cluster, count, stage.orders.that_lives()).await.into_iter().enumerate() {
        let to = another(cluster, slot).await;
        // Where servers can do both, both are used.
        let moved = if as_one && at % 2 == 0 {
            cluster.move_slots_atomically(slot..=slot, &to).await
        } else {
            cluster.move_slot(slot, &to).await
        };
        moved.expect("it moves");
        stage.slot_moved();
    }
    stage.troupe.ledger.write(Entry::Moved { since, slots: count });
}
