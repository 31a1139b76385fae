//! Nodes that come, or come back, and get slots: what they announce is heard from the first word.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use futures::future::join_all;
use keylapse::health::EventMode;
use keylapse_support::{Proxy, eventually};
use keylapse_testing::{LocalCluster, LocalNode, RedisReply};

use crate::attached::scene::{Notes, Scene, Writer, order, three};
use crate::reach;
use crate::support::PATIENCE;

/// Less than the time after which the map is asked for whatever happens.
const SOON: Duration = Duration::from_secs(10);

/// Waits until somebody is subscribed there.
async fn until_heard(node: &LocalNode) {
    let is_heard = async || match node.command(["CLIENT", "LIST", "TYPE", "PUBSUB"]).await {
        Ok(RedisReply::Bulk(clients)) => !clients.is_empty(),
        Ok(other) => panic!("a list: {other:?}"),
        Err(_) => false,
    };
    eventually(SOON, "the node to be heard", is_heard).await;
}

/// Keys that are gone before anybody could read them: each is announced once, and then nothing says that there was one.
async fn write_short_ones(scene: Scene, keys: usize) -> Notes {
    let mut writer = Writer::new(&scene.cluster);
    for id in 0..keys {
        writer.write(&order(format!("{{new}}{id}")), 30 + id as u64 * 37 % 270).await;
    }
    scene.notes.until_these((0..keys).map(|id| order(format!("{{new}}{id}")))).await;
    let notes = scene.end().await;
    notes.assert_explained(keys, &HashSet::new());
    notes
}

/// No partition and no canary lies in the slot, and no key: nothing that is asked for there is sent on.
#[tokio::test(flavor = "multi_thread")]
async fn keys_that_are_written_to_a_node_as_soon_as_it_has_its_first_slot_all_fire() {
    let scene = Scene::start(three().await, 1).await;
    let new = scene.cluster.add_node().await.unwrap();
    until_heard(&new).await;
    let slot = scene.cluster.slot_of("{new}").await.unwrap();
    scene.cluster.move_slot(slot, &new).await.unwrap();
    write_short_ones(scene, 300).await;
}

/// In agreement with the present primary, so that nothing is written to that one and then lost. The request is one message:
/// where there is no link to the primary yet, it is lost, and the replica gives up after 5 s.
async fn promote(cluster: &LocalCluster, replica: &LocalNode, slot: u16) {
    let is_owner = async || cluster.owner_of_slot(slot).await.is_ok_and(|owner| owner == *replica);
    let promoted = async || {
        if replica.command(["CLUSTER", "FAILOVER"]).await.is_err() {
            return false; // it does not follow yet
        }
        let within = eventually(PATIENCE, "the replica to be a primary", is_owner);
        tokio::time::timeout(Duration::from_secs(6), within).await.is_ok()
    };
    eventually(PATIENCE, "a failover", promoted).await;
}

/// Its events are those of a node that is new to the listener, which is not new itself.
#[tokio::test(flavor = "multi_thread")]
async fn keys_that_are_written_to_a_primary_that_was_replaced_and_is_promoted_again_all_fire() {
    let scene = Scene::start(reach::cluster().await, 1).await;
    let slot = scene.cluster.slot_of("{new}").await.unwrap();
    let primary = scene.cluster.owner_of_slot(slot).await.unwrap();
    // Killed, not stopped: Redis 8.6.2 now and then loops for ever in one that is stopped, replaced and continued.
    primary.kill();
    scene.cluster.wait_for_owner_other_than(&primary, slot).await.unwrap();
    primary.restart().await.unwrap();
    until_heard(&primary).await;
    promote(&scene.cluster, &primary, slot).await;
    write_short_ones(scene, 300).await;
}

/// A cluster that rests is asked one short question every two seconds, and for its map twice a minute.
#[tokio::test(flavor = "multi_thread")]
async fn a_listener_of_attached_keys_asks_a_quiet_cluster_for_its_map_twice_a_minute() {
    let builder = reach::cluster_builder().replicas_per_primary(0).announced_host(&Proxy::BESIDE.to_string());
    let cluster = builder.start().await.unwrap();
    let lines = join_all(cluster.nodes().iter().map(|node| Proxy::beside_port(node.port()))).await;
    let scene = Scene::start(cluster, 1).await;
    let asked = async |during: Duration| {
        lines.iter().for_each(Proxy::reset_counts);
        let begun = Instant::now();
        tokio::time::sleep(during).await; // this is what is measured
        let all = lines.iter().map(|line| line.requests().get("CLUSTER").copied().unwrap_or_default());
        (begun.elapsed().as_secs_f64(), all.sum::<u64>())
    };
    // On a busy machine the cluster is not always quiet.
    let rests = async || {
        let (seconds, count) = asked(Duration::from_secs(20)).await;
        // A map is two questions to each of three nodes.
        let most = (seconds / 2.0).ceil() + 6.0 * (seconds / 30.0).ceil();
        println!("{count} questions in {seconds:.1} s, {most} at most");
        count as f64 <= most
    };
    eventually(3 * PATIENCE, "few questions in 20 s", rests).await;
    scene.end().await;
}

/// It is the only one that the listener was told of. Once it is the only one that answers, its map is not the cluster's.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_has_forgotten_its_cluster_does_not_make_a_listener_forget_it() {
    let mut scene = Scene::start(three().await, 0).await;
    let others = scene.cluster.nodes();
    let lone = scene.cluster.add_node().await.unwrap();
    scene.listen(&format!("redis+cluster://127.0.0.1:{}/", lone.port()));
    scene.until(EventMode::Changes).await;
    for other in &others {
        other.command(["CLUSTER", "FORGET", lone.id().unwrap()]).await.unwrap();
    }
    lone.command(["CLUSTER", "RESET", "HARD"]).await.unwrap();
    others.iter().for_each(|other| other.suspend().unwrap());
    let is_silent = async || scene.listeners[0].stats.mode() != EventMode::Changes;
    eventually(PATIENCE, "the listener to hear nothing any more", is_silent).await;
    others.iter().for_each(|other| other.resume().unwrap());
    scene.until(EventMode::Changes).await;
    let mut writer = Writer::among(others.iter().map(LocalNode::url).collect(), 0);
    writer.write_all((0..60).map(order), 1000).await;
    scene.notes.until(60).await;
    let notes = scene.end().await;
    notes.assert_explained(60, &HashSet::new());
}
