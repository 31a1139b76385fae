//! Primaries are gone, or out of reach, and nobody takes their places until they are back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use keylapse::health::EventMode;
use keylapse::{Done, ErrorKind, Failure, Lapse, Listener, Schedule};
use keylapse_support::eventually;
use keylapse_testing::{LocalCluster, LocalClusterBuilder, LocalNode};

use crate::attached::beside::Beside;
use crate::bus::Buses;
use crate::load::{FIRST, Load, MANY, impatient, told, topic};
use crate::reach::{self, as_app};
use crate::support::{PATIENCE, Running};

/// What a node is told before it is killed is there when it is started again.
async fn kept_on_disk(builder: LocalClusterBuilder) -> LocalCluster {
    builder.config("appendonly yes").config("appendfsync always").start().await.unwrap()
}

/// Somebody impatient who has been here before.
async fn knows_all(cluster: &LocalCluster) -> Schedule {
    let schedule = impatient(&cluster.url()).await.unwrap();
    eventually(PATIENCE, "all to answer", async || told(&schedule, 8).await.is_empty()).await;
    schedule
}

/// Waits until nodes that can be reached say that the cluster is down, and looks whether all that is said can be
/// understood.
async fn until_refused(schedule: &Schedule) {
    let mut refused = Vec::new();
    eventually(PATIENCE, "the cluster to be down", async || {
        refused = told(schedule, 8).await;
        refused.iter().any(|error| error.to_string().contains("CLUSTERDOWN"))
    })
    .await;
    for error in refused {
        assert!(!error.needs_operator(), "{error}");
        if error.to_string().contains("CLUSTERDOWN") {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.is_transient(), "{error}");
        }
    }
}

/// All but one node hang: that one is asked, and refuses.
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_reaches_nobody_refuses_and_all_starts_once_when_it_does_again() {
    let cluster = crate::reach::cluster().await;
    let alone = cluster.owner_of_key(FIRST).await.unwrap();
    let mut beside = Beside::start(&cluster).await;
    let load = Load::start(&cluster, 8, MANY, Duration::from_millis(4)).await;
    let schedule = knows_all(&cluster).await;
    load.until_handled(300).await;
    let others: Vec<_> = cluster.nodes().into_iter().filter(|node| *node != alone).collect();
    let harm = async {
        others.iter().for_each(|node| node.suspend().unwrap());
        until_refused(&schedule).await;
        others.iter().for_each(|node| node.resume().unwrap());
        cluster.wait_until_ok().await.unwrap();
    };
    load.harm(beside.harm(harm)).await;
    load.until_more_handled(300).await;
    load.enough().end().await.assert_kept();
    beside.end().await;
}

/// They have what they had written to disk.
#[tokio::test(flavor = "multi_thread")]
async fn without_most_primaries_errors_say_so_and_all_starts_once_when_they_are_back() {
    let cluster = kept_on_disk(crate::reach::cluster_builder()).await;
    let mut beside = Beside::start(&cluster).await;
    let load = Load::start(&cluster, 8, MANY, Duration::from_millis(4)).await;
    let schedule = knows_all(&cluster).await;
    load.until_handled(300).await;
    let gone = &cluster.primaries().await.unwrap()[1..];
    let harm = async {
        gone.iter().for_each(LocalNode::kill);
        until_refused(&schedule).await;
        for node in gone {
            node.restart().await.unwrap();
        }
        cluster.wait_until_ok().await.unwrap();
    };
    load.harm(beside.harm(harm)).await;
    load.until_more_handled(300).await;
    load.enough().end().await.assert_kept();
    beside.end().await;
}

/// It has no replica, so that nobody takes its place; it has what it had written to disk.
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_without_replica_that_is_killed_loses_nothing_and_all_starts_once_when_it_is_back() {
    let cluster = kept_on_disk(crate::reach::cluster_builder().replicas_per_primary(0)).await;
    let mut beside = Beside::start(&cluster).await;
    let load = Load::start(&cluster, 8, MANY, Duration::from_millis(4)).await;
    let schedule = knows_all(&cluster).await;
    load.until_handled(300).await;
    let gone = cluster.owner_of_key(FIRST).await.unwrap();
    let harm = async {
        gone.kill();
        until_refused(&schedule).await;
        gone.restart().await.unwrap();
        cluster.wait_until_ok().await.unwrap();
    };
    load.harm(beside.harm(harm)).await;
    load.until_more_handled(300).await;
    load.enough().end().await.assert_kept();
    beside.end().await;
}

/// A deploy goes on meanwhile: what lies on the others is served, and what does not once it is there again.
#[tokio::test(flavor = "multi_thread")]
async fn who_comes_while_a_primary_is_away_serves_what_lies_on_the_others() {
    let builder = crate::reach::cluster_builder().config("cluster-require-full-coverage no");
    let cluster = kept_on_disk(builder.replicas_per_primary(0)).await;
    let first = cluster.owner_of_key(FIRST).await.unwrap();
    let gone = cluster.nodes().into_iter().find(|node| *node != first).unwrap();
    gone.kill();
    let handled = Arc::<AtomicUsize>::default();
    let count = handled.clone();
    let handler = move |_: Lapse<u32>| {
        count.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok::<_, Failure>(Done))
    };
    let running = Running::start(Listener::builder(as_app(&cluster.url())).on(topic(8), handler));
    let schedule = impatient(&cluster.url()).await.expect("its first partition is there");
    let (soon, mut left) = (Duration::from_millis(10), Vec::new());
    for number in 0..40 {
        if schedule.arm(&topic(8), [number.to_string()], soon, &number).await.is_err() {
            left.push(number);
        }
    }
    assert!((1..40).contains(&left.len()), "{left:?}");
    let begun = 40 - left.len();
    eventually(PATIENCE, "what lies on the others", async || handled.load(Ordering::Relaxed) >= begun).await;
    gone.restart().await.unwrap();
    cluster.wait_until_ok().await.unwrap();
    let patient = reach::schedule(&as_app(&cluster.url()));
    for number in left {
        let _ = patient.arm(&topic(8), [number.to_string()], soon, &number).await.unwrap();
    }
    eventually(PATIENCE, "all", async || handled.load(Ordering::Relaxed) >= 40).await;
    running.stop().await.unwrap();
}

/// The others replace it, and it does not know. Clients reach it, and it tells them what it believes.
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_on_the_smaller_side_of_a_split_is_left_for_the_one_on_the_other() {
    let cluster = crate::reach::cluster().await;
    let buses = Buses::between(&cluster).await;
    let old = cluster.owner_of_key(FIRST).await.unwrap();
    let successor = cluster.replica_of(&old).await.unwrap();
    let beside = Beside::scanned(&cluster, EventMode::Changes).await;
    let load = Load::start(&cluster, 8, MANY, Duration::from_millis(4)).await;
    load.until_handled(300).await;
    let harm = async {
        buses.part(&old);
        // Both are asked, and both say that they have it: the later epoch counts.
        let slot = cluster.slot_of(FIRST).await.unwrap();
        assert_eq!(cluster.wait_for_owner_other_than(&old, slot).await.unwrap(), successor);
        assert!(cluster.primaries().await.unwrap().contains(&old), "it does not know");
        load.until_caught_up().await;
        // Who asks the old one first who has what is told what was so before.
        let schedule = impatient(&format!("redis+cluster://127.0.0.1:{}/", old.port())).await.unwrap();
        eventually(PATIENCE, "a stranger to find the successor", async || {
            told(&schedule, 8).await.is_empty()
        })
        .await;
        buses.heal();
        eventually(PATIENCE, "the old one to follow", async || {
            cluster.replica_of(&successor).await == Ok(old.clone())
        })
        .await;
        cluster.wait_until_ok().await.unwrap();
    };
    load.harm(beside.while_written(harm)).await;
    load.enough().end().await.assert_kept();
    beside.end().await;
}
