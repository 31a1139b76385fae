//! P3 after a failover behind one name: the subscription leaves a server that is a replica now.

use std::collections::BTreeSet;

use keylapse_support::{Server, eventually, skipped_on_a_cluster};

use crate::server::hostile::scene::{Scene, orders};
use crate::server::support::PATIENCE;

/// The ids of the clients that have subscribed.
async fn subscribers(server: &Server) -> BTreeSet<String> {
    let listed = server.cmd(&["CLIENT", "LIST", "TYPE", "pubsub"]).await;
    let lines: String = redis::from_redis_value(listed).unwrap();
    lines.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_leaves_a_server_that_was_demoted() {
    if skipped_on_a_cluster("REPLICAOF is refused: tests/clusters has replicas") {
        return;
    }
    let scene = Scene::of(orders()).await;
    scene.running.until_anchored().await;
    let before = subscribers(&scene.server).await;
    assert!(!before.is_empty());
    scene.server.cmd(&["REPLICAOF", "127.0.0.1", "1"]).await;
    // Where the name leads to is found out by connecting anew; here it is the same server.
    let left = async || subscribers(&scene.server).await.is_disjoint(&before);
    eventually(PATIENCE, "the subscription to be made anew", left).await;
    scene.server.cmd(&["REPLICAOF", "NO", "ONE"]).await;
    scene.proves_well("promoted again").await;
    scene.stop().await;
}
