//! Servers that others replace.

use std::time::Duration;

use keylapse::Expiry;
use keylapse::testing::{Cluster, Node, Reply};
use keylapse_support::eventually;

use crate::attached::scene::{Notes, Scene, Writer, order};
use crate::support::PATIENCE;

async fn with_replicas() -> Cluster {
    crate::reach::cluster().await
}

/// Orders for eight seconds, two of them before the fault. A key counts once a replica has it, too.
async fn during(listeners: usize, fault: impl AsyncFnOnce(&Scene, Node)) -> Notes {
    let scene = Scene::start(with_replicas().await, listeners).await;
    let written = Writer::durable(&scene.cluster, 1).stream(1000, Duration::from_millis(8), 500);
    scene.notes.until(250).await;
    let primary = scene.cluster.owner_of_key(&order(0)).await.unwrap();
    fault(&scene, primary).await;
    let again = written.await.unwrap();
    scene.notes.until_all(1000).await;
    let notes = scene.end().await;
    notes.assert_explained(1000, &again);
    notes
}

#[tokio::test(flavor = "multi_thread")]
async fn p1_a_killed_primary_costs_no_expiry_of_a_key_that_its_replica_has() {
    during(2, async |Scene { cluster, notes, .. }, primary| {
        let slot = cluster.slot_of(&order(0)).await.unwrap();
        let harm = async {
            primary.kill();
            cluster.wait_for_owner_other_than(&primary, slot).await.unwrap();
        };
        notes.harm(harm).await;
        // As a replica of its successor, which has none else.
        primary.restart().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p1_a_primary_that_is_stopped_replaced_and_continued_costs_no_expiry() {
    during(2, async |Scene { cluster, notes, .. }, primary| {
        let slot = cluster.slot_of(&order(0)).await.unwrap();
        let harm = async {
            primary.stop().unwrap();
            cluster.wait_for_owner_other_than(&primary, slot).await.unwrap();
            primary.go_on().unwrap();
        };
        notes.harm(harm).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_by_hand_costs_no_expiry() {
    during(1, async |Scene { cluster, .. }, primary| {
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
    writer.write_all((0..200).map(|id| order(format!("{{a}}{id}"))), 2500).await;
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

/// A key's expiry is announced by its own server, and noted on that of its partition: which may be replaced by one that
/// has not heard of the note.
#[tokio::test(flavor = "multi_thread")]
async fn p1_an_expiry_whose_note_a_replaced_primary_took_with_it_fires() {
    let scene = Scene::start(with_replicas().await, 1).await;
    let mut writer = Writer::new(&scene.cluster);
    writer.write_all((0..60).map(order), 5000).await;
    scene.until_enrolled(60).await;
    let partition = "keylapse:{orders/0}:watch";
    let slot = scene.cluster.slot_of(partition).await.unwrap();
    let old = scene.cluster.owner_of_slot(slot).await.unwrap();
    let mut noted_there = Vec::new();
    for key in (0..60).map(order) {
        let is_there = old.command(["HEXISTS", partition, &key]).await.unwrap() == Reply::Int(1);
        if is_there && scene.cluster.owner_of_key(&key).await.unwrap() != old {
            noted_there.push(key);
        }
    }
    assert!(!noted_there.is_empty());
    old.command(["WAIT", "1", "5000"]).await.unwrap();
    // It is told nothing more, also not what waits in its socket.
    let successor = scene.cluster.replica_of(&old).await.unwrap();
    successor.stop().unwrap();
    old.command(["CLIENT", "KILL", "TYPE", "replica"]).await.unwrap();
    scene.notes.until(60).await;
    scene.notes.assert_each_once(60);
    old.kill();
    successor.go_on().unwrap();
    assert_eq!(scene.cluster.wait_for_owner_other_than(&old, slot).await.unwrap(), successor);
    let is_recovered =
        |key: &String| scene.notes.all()[key].iter().any(|run| run.expiry == Expiry::Recovered);
    eventually(PATIENCE, "what it had noted to fire", async || noted_there.iter().all(is_recovered)).await;
    scene.end().await;
}
