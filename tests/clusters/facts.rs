//! What clusters do, on which the rules for topics in clusters stand: commands to servers, and no keylapse
//! between.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use keylapse_support::{Direction, Proxy, connect, eventually};
use keylapse_testing::{LocalCluster, LocalNode, RedisReply};
use redis::aio::PubSub;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(20);
const CANARY: &str = include_str!("../../crates/wire/src/scripts/canary.lua");

/// What is published on channels of this pattern.
async fn listen(node: &LocalNode, channels: &str) -> PubSub {
    let client = redis::Client::open(node.url()).expect("a URL");
    let mut events = client.get_async_pubsub().await.expect("connected");
    events.psubscribe(channels).await.expect("allowed");
    events
}

/// Channel and key of the next event.
async fn next(events: &mut PubSub) -> (String, String) {
    let event = timeout(PATIENCE, events.on_message().next()).await.expect("an event").expect("a connection");
    (event.get_channel_name().to_owned(), event.get_payload().expect("text"))
}

/// Keys of two slots that this node has.
async fn of_two_slots(cluster: &LocalCluster, node: &LocalNode) -> [String; 2] {
    let mut found: Vec<(u16, String)> = Vec::new();
    for key in (0..).map(|number| format!("key:{number}")) {
        let slot = cluster.slot_of(&key).await.expect("an answer");
        if found.iter().all(|(other, _)| *other != slot)
            && cluster.owner_of_slot(slot).await == Ok(node.clone())
        {
            found.push((slot, key));
        }
        if let [(_, first), (_, second)] = &found[..] {
            return [first.clone(), second.clone()];
        }
    }
    unreachable!("there are enough numbers")
}

#[tokio::test]
async fn primaries_that_are_asked_at_once_make_canaries_with_the_same_number() {
    let cluster = LocalCluster::builder().replicas_per_primary(0).start().await.expect("a cluster");
    let mut asked = Vec::new();
    for node in cluster.nodes() {
        let [key, _] = of_two_slots(&cluster, &node).await;
        asked.push((connect(&node.url()).await.expect("connected"), format!("{{{key}}}:canary")));
    }
    let mut numbers = async || -> BTreeSet<String> {
        let canaries = asked.iter_mut().map(async |(connection, key)| {
            let canary =
                redis::cmd("EVAL").arg(CANARY).arg(1).arg(&*key).arg(1).query_async(connection).await;
            let (name, _is_new): (String, i64) = canary.expect("a canary");
            name.split(':').next().expect("a number").to_owned()
        });
        join_all(canaries).await.into_iter().collect()
    };
    eventually(PATIENCE, "three canaries of one number", async || numbers().await.len() == 1).await;
}

#[tokio::test]
async fn a_primary_that_was_stopped_and_replaced_publishes_what_its_successor_has_published() {
    let cluster = LocalCluster::start().await.expect("a cluster");
    let slot = cluster.slot_of("{a}").await.expect("an answer");
    let old = cluster.owner_of_slot(slot).await.expect("it is well");
    let successor = cluster.replica_of(&old).await.expect("each has one");
    let [mut first, mut second] = [listen(&successor, "*:expired").await, listen(&old, "*:expired").await];
    let mut keys = redis::pipe();
    (0..200).for_each(|number| _ = keys.cmd("SET").arg(format!("{{a}}{number}")).arg("").arg("PX").arg(1000));
    let mut connection = connect(&old.url()).await.expect("connected");
    keys.cmd("WAIT").arg(1).arg(5000).exec_async(&mut connection).await.expect("200 keys");
    old.suspend().expect("it runs");

    assert_eq!(cluster.wait_for_owner_other_than(&old, slot).await.expect("a promotion"), successor);
    let mut published = BTreeSet::new();
    while published.len() < 200 {
        published.insert(next(&mut first).await.1);
    }
    let mut make = redis::cmd("EVAL");
    make.arg(CANARY).arg(1).arg("{a}canary").arg(1);
    let mut canary = pin!(make.query_async::<(String, i64)>(&mut connection));
    let answered = timeout(Duration::from_millis(100), &mut canary).await;
    assert!(answered.is_err(), "it waits in the old one's socket");
    old.resume().expect("it was stopped");
    // All of them, or as many as it comes to before it learns that it was replaced.
    let (_, key) = next(&mut second).await;
    assert!(published.contains(&key), "{key}");
    assert!(canary.await.is_ok(), "and is accepted");
}

#[tokio::test]
async fn a_replica_publishes_that_a_key_is_deleted_and_never_that_it_has_expired() {
    let builder = LocalCluster::builder().primaries(1).notifications("Exg");
    let cluster = builder.start().await.expect("a cluster");
    let [primary, replica] = [0, 1].map(|at| cluster.nodes()[at].clone());
    let [mut there, mut here] = [listen(&primary, "*:expired").await, listen(&replica, "*").await];
    for key in ["a", "b"] {
        primary.command(["SET", key, "", "PX", "1"]).await.expect("an answer");
        assert_eq!(next(&mut there).await.1, key);
    }
    let mut heard = Vec::new();
    while !heard.contains(&("__keyevent@0__:del".to_owned(), "b".to_owned())) {
        heard.push(next(&mut here).await);
    }
    assert!(heard.contains(&("__keyevent@0__:del".to_owned(), "a".to_owned())), "{heard:?}");
    assert!(!heard.iter().any(|(channel, _)| channel.ends_with(":expired")), "{heard:?}");
}

#[tokio::test]
async fn two_slots_of_one_node_are_still_two_slots() {
    let cluster =
        LocalCluster::builder().primaries(1).replicas_per_primary(0).start().await.expect("a cluster");
    let node = cluster.nodes()[0].clone();
    let [a, b] = of_two_slots(&cluster, &node).await;
    for command in [&["SSUBSCRIBE", &a, &b][..], &["EXISTS", &a, &b], &["EVAL", "return 1", "2", &a, &b]] {
        match node.command(command).await.expect("an answer") {
            RedisReply::Error(error) => assert!(error.starts_with("CROSSSLOT"), "{command:?}: {error}"),
            reply => panic!("{command:?}: {reply}"),
        }
    }
}

#[tokio::test]
async fn clients_of_a_cluster_come_through_proxies_where_it_announces_their_host() {
    let host = Proxy::BESIDE.to_string();
    let builder = LocalCluster::builder().replicas_per_primary(0).announced_host(&host);
    let cluster = builder.start().await.expect("a cluster");
    let proxies = join_all(cluster.nodes().iter().map(|node| Proxy::beside_port(node.port()))).await;
    assert!(cluster.url().contains(&format!("{host}:{}", proxies[0].port())), "{}", cluster.url());

    let owner = cluster.owner_of_key("a").await.expect("it is well");
    let other = cluster.nodes().into_iter().find(|node| *node != owner).expect("three nodes");
    let Ok(RedisReply::Error(moved)) = other.command(["GET", "a"]).await else {
        panic!("it has not the slot")
    };
    assert!(moved.ends_with(&format!(" {host}:{}", owner.port())), "{moved}");

    let proxy = proxies.iter().find(|proxy| proxy.port() == owner.port()).expect("one for each");
    let mut client = connect(&proxy.url()).await.expect("connected");
    proxy.stall(Direction::Both);
    let ping = async |client: &mut _| redis::cmd("PING").query_async::<String>(client).await;
    assert!(timeout(Duration::from_millis(100), ping(&mut client)).await.is_err(), "the line is dead,");
    cluster.wait_until_ok().await.expect("and the cluster does not notice");
    proxy.resume();
    assert_eq!(ping(&mut client).await.expect("an answer"), "PONG");
}

/// Why wake-ups have a connection of their own: a fact about `redis` as well.
#[tokio::test]
async fn that_a_slot_has_moved_is_taken_for_the_answer_to_what_was_asked_before() {
    let cluster =
        LocalCluster::builder().primaries(2).replicas_per_primary(0).start().await.expect("a cluster");
    let source = cluster.nodes()[0].clone();
    let [moved, stays] = of_two_slots(&cluster, &source).await;
    let url = format!("{}?protocol=resp3", source.url());
    let config =
        redis::AsyncConnectionConfig::new().set_push_sender(|_| Ok::<(), std::convert::Infallible>(()));
    let client = redis::Client::open(url).expect("a URL");
    let connection = client.get_multiplexed_async_connection_with_config(&config).await.expect("connected");
    let mut subscribing = connection.clone();
    redis::cmd("SSUBSCRIBE").arg(&moved).exec_async(&mut subscribing).await.expect("it has the slot");
    let mut asking = connection.clone();
    let asked = tokio::spawn(async move {
        redis::cmd("BLPOP").arg(&stays).arg(20).query_async::<redis::Value>(&mut asking).await
    });
    let waits = async || {
        let clients = source.command(["CLIENT", "LIST"]).await;
        matches!(clients, Ok(RedisReply::Bulk(all)) if String::from_utf8_lossy(&all).contains("cmd=blpop"))
    };
    eventually(PATIENCE, "it to wait", waits).await;
    let slot = cluster.slot_of(&moved).await.expect("an answer");
    cluster.move_slot(slot, &cluster.nodes()[1]).await.expect("it moves");
    let answer = timeout(PATIENCE / 2, asked).await.expect("an answer").expect("no panic").expect("no error");
    assert!(matches!(answer, redis::Value::Push { kind: redis::PushKind::SUnsubscribe, .. }), "{answer:?}");
}
