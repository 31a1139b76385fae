//! The cluster to throw away.

use keylapse::ErrorKind;
use keylapse_testing::{LocalCluster, LocalNode, RedisReply};

#[tokio::test]
async fn six_nodes_are_a_cluster_as_long_as_it_is_kept() {
    let cluster = LocalCluster::start().await.expect("a cluster");
    assert_eq!(cluster.primaries().await.expect("an answer"), cluster.nodes()[..3]);
    let owner = cluster.owner_of_key("a").await.expect("it is well");
    assert_eq!(owner.command(["SET", "a", "1"]).await.expect("an answer"), RedisReply::Status("OK".into()));
    let node = cluster.nodes()[5].clone();
    drop(cluster);
    assert_eq!(node.pid(), None);
    node.command(["PING"]).await.expect_err("it has ended");
}

#[tokio::test]
async fn the_replica_of_a_killed_primary_takes_its_place_and_the_old_one_comes_back_as_its_replica() {
    let cluster = LocalCluster::start().await.expect("a cluster");
    let primary = cluster.owner_of_slot(0).await.expect("it is well");
    let replica = cluster.replica_of(&primary).await.expect("each has one");
    primary.kill();
    let successor = cluster.wait_for_owner_other_than(&primary, 0).await.expect("a promotion");
    assert_eq!(successor, replica);
    primary.restart().await.expect("its ports are free");
    cluster.wait_until_ok().await.expect("it is well again");
    assert_eq!(cluster.replica_of(&successor).await.expect("it has come back"), primary);
}

#[tokio::test]
async fn a_slot_moves_with_its_keys_and_can_be_caught_on_its_way() {
    let cluster =
        LocalCluster::builder().replicas_per_primary(0).password("p w%").start().await.expect("a cluster");
    let slot = cluster.slot_of("{a}1").await.expect("an answer");
    let [from, to] = [slot, (slot + 8192) % 16384].map(|slot| cluster.owner_of_slot(slot));
    let (from, to) = (from.await.expect("it is well"), to.await.expect("it is well"));
    from.command(["MSET", "{a}1", "1", "{a}2", "2"]).await.expect("an answer");

    let half = cluster.begin_move(slot, &to).await.expect("a move");
    assert!(half.move_key("{a}1").await.expect("an answer"));
    assert!(!half.move_key("{a}3").await.expect("an answer"));
    assert_eq!(code(&from, "GET {a}1").await, "ASK");
    assert_eq!(code(&from, "MGET {a}1 {a}2").await, "TRYAGAIN");
    assert_eq!(code(&to, "GET {a}1").await, "MOVED");
    half.move_keys().await.expect("an answer");
    half.end().await.expect("it has moved");
    assert_eq!(code(&from, "GET {a}1").await, "MOVED");
    assert_eq!(ask(&to, "MGET {a}1 {a}2").await, RedisReply::Array(vec![text("1"), text("2")]));
    assert_eq!(cluster.owner_of_slot(slot).await.expect("it is well"), to);

    cluster.move_slot(slot, &from).await.expect("it moves back");
    assert_eq!(ask(&from, "GET {a}2").await, text("2"));
    atomically(&cluster, slot, &to).await;
}

#[tokio::test]
async fn a_node_that_has_not_heard_who_took_the_last_slot_keeps_the_next() {
    let cluster =
        LocalCluster::builder().replicas_per_primary(0).config("enable-debug-command yes").start().await;
    let cluster = cluster.expect("a cluster");
    let nodes = cluster.nodes();
    let last = cluster.owner_of_slot(16_383).await.expect("it is well");
    assert_eq!(last, nodes[2]);
    // It has the greatest epoch. What the second says when it takes a slot does not reach it.
    assert_eq!(
        ask(&last, &format!("DEBUG DROP-CLUSTER-PACKET-FILTER {PONG}")).await,
        RedisReply::Status("OK".into())
    );
    let (of_the_first, of_the_second) = (0, 8192);
    cluster.move_slot(of_the_first, &nodes[1]).await.expect("it moves");
    cluster.move_slot(of_the_second, &last).await.expect("it moves");
    ask(&last, "DEBUG DROP-CLUSTER-PACKET-FILTER -1").await;
    cluster.wait_until_ok().await.expect("each slot has an owner that all know");
    assert_eq!(cluster.owner_of_slot(of_the_second).await.expect("it is well"), last);
}

/// A message between nodes: `CLUSTERMSG_TYPE_PONG`.
const PONG: u16 = 1;

async fn atomically(cluster: &LocalCluster, slot: u16, to: &LocalNode) {
    let moved = cluster.move_slots_atomically(slot..=slot, to).await;
    if cluster.can_move_slots_atomically().await.expect("an answer") {
        moved.expect("the server can");
        assert_eq!(ask(to, "GET {a}2").await, text("2"));
    } else {
        assert_eq!(moved.expect_err("the server cannot").kind(), ErrorKind::Unsupported);
    }
}

#[tokio::test]
async fn nodes_are_stopped_and_go_on_trade_roles_come_and_go_and_change_their_addresses() {
    let cluster = LocalCluster::start().await.expect("a cluster");
    let [primary, other] = [0, 1].map(|at| cluster.nodes()[at].clone());
    let replica = cluster.replica_of(&primary).await.expect("each has one");
    cluster.failover(&replica).await.expect("an orderly failover");
    assert_eq!(cluster.owner_of_slot(0).await.expect("it is well"), replica);

    primary.suspend().expect("it runs");
    assert!(!primary.is_running() && primary.pid().is_some());
    assert_eq!(cluster.replicas_of(&replica).await.expect("the others answer"), []);
    primary.resume().expect("it was stopped");
    assert_eq!(cluster.replica_of(&replica).await.expect("it answers again"), primary);

    let ports: Vec<u16> = cluster.nodes().iter().map(LocalNode::port).collect();
    primary.restart_elsewhere().await.expect("other ports are free");
    cluster.wait_until_ok().await.expect("the others find it");
    assert!(!ports.contains(&primary.port()));

    let new = cluster.add_node().await.expect("a seventh");
    let slot = cluster.slot_of("a").await.expect("an answer");
    cluster.move_slot(slot, &new).await.expect("it is empty");
    assert_eq!(cluster.owner_of_key("a").await.expect("it is well"), new);
    cluster.move_slot(slot, &other).await.expect("it is empty");
    cluster.remove_node(&new).await.expect("it has no slots");
    assert_eq!((cluster.nodes().len(), new.pid()), (6, None));
    cluster.wait_until_ok().await.expect("it is well without the seventh");
}

async fn ask(node: &LocalNode, line: &str) -> RedisReply {
    node.command(line.split(' ')).await.expect("an answer")
}

/// The first word of an error.
async fn code(node: &LocalNode, line: &str) -> String {
    match ask(node, line).await {
        RedisReply::Error(error) => error.split(' ').next().expect("a word").to_owned(),
        reply => panic!("{line} is answered with {reply}"),
    }
}

fn text(text: &'static str) -> RedisReply {
    RedisReply::Bulk(text.into())
}
