//! Slots that move.

use std::collections::BTreeSet;
use std::time::Duration;

use keylapse::testing::{Cluster, Node};

use crate::load::Load;
use crate::reach::{self, assert_nothing_refused};

/// The slots of the topic's partitions, and some that trigger keys lie in.
async fn slots(cluster: &Cluster, partitions: u32, count: usize) -> BTreeSet<u16> {
    let mut slots = BTreeSet::new();
    for partition in 0..partitions {
        slots.insert(cluster.slot_of(&format!("keylapse:{{app.order/{partition}}}:due")).await.unwrap());
    }
    let mut number = 0;
    while slots.len() < count {
        slots.insert(cluster.slot_of(&format!("app:order:{number}")).await.unwrap());
        number += 1;
    }
    slots
}

async fn another(cluster: &Cluster, slot: u16) -> Node {
    let owner = cluster.owner_of_slot(slot).await.unwrap();
    cluster.primaries().await.unwrap().into_iter().find(|node| *node != owner).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_slots_that_move_one_by_one_cost_no_timer_and_double_none() {
    let cluster = reach::cluster().await;
    let slots = slots(&cluster, 8, 100).await;
    let load = Load::start(&cluster, 8, 8000, Duration::from_millis(1)).await;
    for slot in slots {
        let to = another(&cluster, slot).await;
        cluster.move_slot(slot, &to).await.unwrap();
    }
    let outcome = load.end().await;
    outcome.assert_none_early();
    assert_eq!(outcome.doubled, 0);
    assert_nothing_refused(&cluster.nodes()).await;
}
