//! Slots that move.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use keylapse_support::Binary;
use keylapse_testing::{LocalCluster, LocalNode};

use crate::attached::beside::Beside;
use crate::load::{FIRST, Load, MANY};
use crate::reach::{self, assert_nothing_refused};

/// The slots of the topic's partitions, and some that trigger keys lie in.
async fn slots(cluster: &LocalCluster, partitions: u32, count: usize) -> BTreeSet<u16> {
    let mut slots = BTreeSet::new();
    for partition in 0..partitions {
        slots.insert(cluster.slot_of(&format!("keylapse:{{app.timer/{partition}}}:due")).await.unwrap());
    }
    let mut number = 0;
    while slots.len() < count {
        slots.insert(cluster.slot_of(&format!("app:timer:{number}")).await.unwrap());
        number += 1;
    }
    slots
}

async fn another(cluster: &LocalCluster, slot: u16) -> LocalNode {
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
    outcome.assert_kept();
    assert_eq!(outcome.doubled, 0);
    assert_nothing_refused(&cluster.nodes()).await;
}

/// It is heard as soon as it has slots, and left when it has none.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_comes_is_given_slots_gives_them_back_and_goes_costs_no_timer_and_doubles_none() {
    let cluster = crate::reach::cluster().await;
    let slots = slots(&cluster, 8, 16).await;
    let beside = Beside::start(&cluster).await;
    let load = Load::start(&cluster, 8, MANY, Duration::from_millis(4)).await;
    let anchored = load.running.stats.listener().anchored;
    let new = cluster.add_node().await.unwrap();
    let mut from = Vec::new();
    for slot in slots {
        from.push((slot, cluster.owner_of_slot(slot).await.unwrap()));
        cluster.move_slot(slot, &new).await.unwrap();
    }
    load.running.until("the new node to be heard", |stats| stats.listener().anchored > anchored).await;
    load.until_more_handled(300).await;
    for (slot, owner) in from {
        cluster.move_slot(slot, &owner).await.unwrap();
    }
    cluster.remove_node(&new).await.unwrap();
    load.until_more_handled(300).await;
    let outcome = load.enough().end().await;
    outcome.assert_kept();
    assert_eq!(outcome.doubled, 0);
    beside.end().await;
}

/// All slots that a node has go to another, with all that lies there, while it goes on to serve them.
#[tokio::test(flavor = "multi_thread")]
async fn slots_that_move_as_one_cost_no_timer_and_double_none() {
    for able in reach::that_move_slots_as_one() {
        move_slots_as_one(&able).await;
    }
}

async fn move_slots_as_one(able: &Binary) {
    let cluster = reach::cluster_builder().binary(able.path()).start().await.unwrap();
    let beside = Beside::start(&cluster).await;
    let load = Load::start(&cluster, 8, MANY, Duration::from_millis(4)).await;
    load.until_handled(200).await;
    let slot = cluster.slot_of(FIRST).await.unwrap();
    // The slots around that of the first partition, to each of the others in turn.
    let slots = slot.saturating_sub(1000)..=(slot + 1000).min(16_383);
    let slots = of_one(&cluster, slots).await;
    for _ in 0..3 {
        let to = another(&cluster, slot).await;
        cluster.move_slots_atomically(slots.clone(), &to).await.unwrap();
        load.until_more_handled(200).await;
    }
    let outcome = load.enough().end().await;
    outcome.assert_kept();
    assert_eq!(outcome.doubled, 0);
    beside.end().await;
}

/// Those of the slots that the owner of the first partition has.
async fn of_one(cluster: &LocalCluster, slots: RangeInclusive<u16>) -> RangeInclusive<u16> {
    let owner = cluster.owner_of_key(FIRST).await.unwrap();
    let (mut first, mut last) = (u16::MAX, 0);
    for slot in slots.step_by(50).chain([cluster.slot_of(FIRST).await.unwrap()]) {
        if cluster.owner_of_slot(slot).await.as_ref() == Ok(&owner) {
            (first, last) = (first.min(slot), last.max(slot));
        }
    }
    first..=last
}
