//! The cluster to throw away.

use std::time::Instant;

use keylapse::testing::{Cluster, Reply};

#[tokio::test]
async fn six_nodes_are_a_cluster_as_long_as_it_is_kept() {
    let begun = Instant::now();
    let cluster = Cluster::start().await.expect("a cluster");
    println!("started in {:?}", begun.elapsed());
    assert_eq!(cluster.primaries().await.expect("an answer"), cluster.nodes()[..3]);
    let owner = cluster.owner_of_key("a").await.expect("it is well");
    assert_eq!(owner.command(["SET", "a", "1"]).await.expect("an answer"), Reply::Status("OK".into()));
    let node = cluster.nodes()[5].clone();
    drop(cluster);
    assert_eq!(node.pid(), None);
    node.command(["PING"]).await.expect_err("it has ended");
}

#[tokio::test]
async fn the_replica_of_a_killed_primary_takes_its_place_and_the_old_one_comes_back_as_its_replica() {
    let cluster = Cluster::start().await.expect("a cluster");
    let primary = cluster.owner_of_slot(0).await.expect("it is well");
    let replica = cluster.replica_of(&primary).await.expect("each has one");
    let begun = Instant::now();
    primary.kill();
    let successor = cluster.wait_for_owner_other_than(&primary, 0).await.expect("a promotion");
    println!("promoted in {:?}", begun.elapsed());
    assert_eq!(successor, replica);
    primary.restart().await.expect("its ports are free");
    cluster.wait_until_ok().await.expect("it is well again");
    assert_eq!(cluster.replica_of(&successor).await.expect("it has come back"), primary);
}
