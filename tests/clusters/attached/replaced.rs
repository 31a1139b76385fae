//! Servers that others replace.

use std::time::Duration;

use keylapse::testing::{Cluster, Node};
use keylapse_support::eventually;

use crate::attached::scene::{Notes, Scene, Writer, order};
use crate::support::PATIENCE;

async fn with_replicas() -> Cluster {
    crate::reach::cluster_builder().notifications("KExg$").start().await.unwrap()
}

/// Orders for eight seconds, two of them before the fault. A key counts once a replica has it, too.
async fn during(listeners: usize, fault: impl AsyncFnOnce(&Cluster, Node)) -> Notes {
    let scene = Scene::start(with_replicas().await, listeners).await;
    let written = Writer::durable(&scene.cluster, 1).stream(1000, Duration::from_millis(8), 500);
    scene.notes.until(250).await;
    let primary = scene.cluster.owner_of_key(&order(0)).await.unwrap();
    fault(&scene.cluster, primary).await;
    let again = written.await.unwrap();
    scene.notes.until_all(1000).await;
    let notes = scene.end().await;
    notes.assert_explained(1000, &again);
    notes
}

#[tokio::test(flavor = "multi_thread")]
async fn p1_a_killed_primary_costs_no_expiry_of_a_key_that_its_replica_has() {
    during(2, async |cluster, primary| {
        let slot = cluster.slot_of(&order(0)).await.unwrap();
        primary.kill();
        cluster.wait_for_owner_other_than(&primary, slot).await.unwrap();
        // As a replica of its successor, which has none else.
        primary.restart().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p1_a_primary_that_is_stopped_replaced_and_continued_costs_no_expiry() {
    during(2, async |cluster, primary| {
        let slot = cluster.slot_of(&order(0)).await.unwrap();
        primary.stop().unwrap();
        cluster.wait_for_owner_other_than(&primary, slot).await.unwrap();
        primary.go_on().unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_by_hand_costs_no_expiry() {
    during(1, async |cluster, primary| {
        let replica = cluster.replica_of(&primary).await.unwrap();
        cluster.failover(&replica).await.unwrap();
    })
    .await;
}

/// P3: both announce all 200 of them, the one that was replaced before it learns that it was.
#[tokio::test(flavor = "multi_thread")]
async fn p3_what_a_replaced_primary_announces_after_its_successor_fires_once() {
    let scene = Scene::start(with_replicas().await, 1).await;
    let slot = scene.cluster.slot_of("{a}").await.unwrap();
    let old = scene.cluster.owner_of_slot(slot).await.unwrap();
    let successor = scene.cluster.replica_of(&old).await.unwrap();
    let mut writer = Writer::new(&scene.cluster);
    for id in 0..200 {
        writer.write(&order(format!("{{a}}{id}")), 2500).await;
    }
    scene.until_enrolled(200).await;
    old.command(["WAIT", "1", "5000"]).await.unwrap();
    old.stop().unwrap();
    assert_eq!(scene.cluster.wait_for_owner_other_than(&old, slot).await.unwrap(), successor);
    scene.notes.until(200).await;
    old.go_on().unwrap();
    let is_replica = async || {
        let role = old.command(["ROLE"]).await;
        format!("{role:?}").contains("slave")
    };
    eventually(PATIENCE, "the old one to learn it", is_replica).await;
    // That nothing more comes has no signal: by then, it has announced all and its next canary was due.
    tokio::time::sleep(Duration::from_secs(2)).await;
    scene.notes.assert_each_once(200);
    scene.end().await;
}
