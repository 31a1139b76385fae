//! Servers that others replace.

use std::time::Duration;

use keylapse::testing::Cluster;
use keylapse_support::eventually;

use crate::attached::scene::{Scene, Writer, order};
use crate::support::PATIENCE;

async fn with_replicas() -> Cluster {
    Cluster::builder().notifications("KExg$").start().await.unwrap()
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
    tokio::time::sleep(Duration::from_secs(2)).await;
    scene.notes.assert_each_once(200);
    scene.end().await;
}
