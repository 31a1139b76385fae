//! Servers that others replace.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use keylapse::Expiry;
use keylapse_support::{Proxy, eventually};
use keylapse_testing::{LocalCluster, LocalNode, RedisReply};
use redis::aio::PubSub;
use tokio::time::timeout;

use crate::attached::scene::{Notes, Scene, Writer, order};
use crate::capture::Capture;
use crate::reach::cluster_builder;
use crate::support::PATIENCE;

async fn with_replicas() -> LocalCluster {
    crate::reach::cluster().await
}

/// Orders for eight seconds, two of them before the fault. A key counts once a replica has it, too.
async fn during(listeners: usize, fault: impl AsyncFnOnce(&Scene, LocalNode)) -> Notes {
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
            primary.suspend().unwrap();
            cluster.wait_for_owner_other_than(&primary, slot).await.unwrap();
            primary.resume().unwrap();
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

/// P3: both announce them, the one that was replaced as many as it comes to before it learns that it was. A listener hears both,
/// and for some time nobody who could tell it which of them is the primary.
async fn each_fires_once_that_both_announce() {
    let (log, _kept) = Capture::start();
    let builder = cluster_builder().announced_host(&Proxy::BESIDE.to_string());
    let cluster = builder.start().await.unwrap();
    let lines = join_all(cluster.nodes().iter().map(|node| Proxy::beside_port(node.port()))).await;
    let scene = Scene::start(cluster, 1).await;
    let slot = scene.cluster.slot_of("{a}").await.unwrap();
    let old = scene.cluster.owner_of_slot(slot).await.unwrap();
    let successor = scene.cluster.replica_of(&old).await.unwrap();
    let keys: BTreeSet<_> = (0..200).map(|id| order(format!("{{a}}{id}"))).collect();
    // As one: written one by one on a busy machine, the first would expire before the last is enrolled.
    let set = "for _, key in ipairs(KEYS) do redis.call('SET', key, key, 'PX', 3000) end";
    let eval = ["EVAL", set, "200"].into_iter().chain(keys.iter().map(String::as_str));
    old.command(eval).await.unwrap();
    scene.until_enrolled(200).await;
    old.command(["WAIT", "1", "5000"]).await.unwrap();
    let [mut of_old, mut of_successor] = [expired(&old).await, expired(&successor).await];

    // At once, and not when a majority has missed it: a subscription that has no answer for five seconds is given up.
    old.suspend().unwrap();
    successor.command(["CLUSTER", "FAILOVER", "TAKEOVER"]).await.unwrap();
    let others: Vec<_> = lines.iter().filter(|line| line.port() != old.port()).collect();
    for line in &others {
        line.refuse().await;
        line.cut();
    }
    let mut left = keys.clone();
    while !left.is_empty() {
        left.remove(&next(&mut of_successor).await);
    }
    old.resume().unwrap();
    let is_replica = async || format!("{:?}", old.command(["ROLE"]).await).contains("slave");
    eventually(PATIENCE, "the old one to learn it", is_replica).await;
    // Behind all that it has announced.
    old.command(["PUBLISH", END, END]).await.unwrap();
    let mut again = BTreeSet::new();
    loop {
        match next(&mut of_old).await {
            end if end == END => break,
            // What the listener itself has made expire, to see whether it hears.
            canary if canary.starts_with("keylapse:{heartbeat/") => {}
            key => _ = again.insert(key),
        }
    }
    assert!(!again.is_empty() && again.is_subset(&keys), "{again:?}");
    for line in &others {
        line.accept().await;
    }
    let count = format!(" keys={}", again.len());
    let dropped = async || {
        log.lines().iter().any(|line| line.contains("a server was replaced") && line.contains(&count))
    };
    eventually(PATIENCE, "all that the old one has announced to be dropped", dropped).await;
    scene.notes.until(200).await;
    scene.notes.assert_each_once(200);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p3_what_a_replaced_primary_announces_after_its_successor_fires_once() {
    each_fires_once_that_both_announce().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: make test-more SUITE=clusters-long"]
async fn p3_what_a_replaced_primary_announces_after_its_successor_fires_once_twenty_times() {
    for _ in 0..20 {
        each_fires_once_that_both_announce().await;
    }
}

/// The channel of what ends that.
const END: &str = "end";

/// What this node announces from now on to have expired.
async fn expired(node: &LocalNode) -> PubSub {
    let mut events = redis::Client::open(node.url()).unwrap().get_async_pubsub().await.unwrap();
    events.subscribe(&["__keyevent@0__:expired", END]).await.unwrap();
    events
}

async fn next(events: &mut PubSub) -> String {
    let heard =
        timeout(PATIENCE, events.on_message().next()).await.expect("another event").expect("a connection");
    heard.get_payload().unwrap()
}

/// A key's expiry is announced by its own server, and noted on that of its partition: which may be replaced by one that
/// has not heard of the note.
#[tokio::test(flavor = "multi_thread")]
async fn p1_an_expiry_whose_note_a_replaced_primary_took_with_it_fires() {
    let scene = Scene::start(with_replicas().await, 1).await;
    let mut writer = Writer::new(&scene.cluster);
    writer.write_all((0..60).map(order), 5000).await;
    scene.until_enrolled(60).await;
    let partition = "keylapse:{orders/0}:tracked";
    let slot = scene.cluster.slot_of(partition).await.unwrap();
    let old = scene.cluster.owner_of_slot(slot).await.unwrap();
    let mut noted_there = Vec::new();
    for key in (0..60).map(order) {
        let is_there = old.command(["HEXISTS", partition, &key]).await.unwrap() == RedisReply::Int(1);
        if is_there && scene.cluster.owner_of_key(&key).await.unwrap() != old {
            noted_there.push(key);
        }
    }
    assert!(!noted_there.is_empty());
    old.command(["WAIT", "1", "5000"]).await.unwrap();
    // It is told nothing more, also not what waits in its socket.
    let successor = scene.cluster.replica_of(&old).await.unwrap();
    successor.suspend().unwrap();
    old.command(["CLIENT", "KILL", "TYPE", "replica"]).await.unwrap();
    scene.notes.until(60).await;
    scene.notes.assert_each_once(60);
    old.kill();
    successor.resume().unwrap();
    assert_eq!(scene.cluster.wait_for_owner_other_than(&old, slot).await.unwrap(), successor);
    let is_recovered =
        |key: &String| scene.notes.all()[key].iter().any(|run| run.expiry == Expiry::Recovered);
    eventually(PATIENCE, "what it had noted to fire", async || noted_there.iter().all(is_recovered)).await;
    scene.end().await;
}
