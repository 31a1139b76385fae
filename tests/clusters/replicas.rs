//! What replicas are not, or not yet.

use std::time::Duration;

use keylapse::Schedule;
use keylapse::health::EventMode;
use keylapse::timers::Durably;
use keylapse_support::eventually;
use keylapse_testing::{LocalNode, RedisReply};

use crate::attached::beside::Beside;
use crate::capture::Capture;
use crate::load::{FIRST, Load, MANY, topic};
use crate::reach::{self, FLAGS};
use crate::support::PATIENCE;

#[tokio::test(flavor = "multi_thread")]
async fn timed_without_any_replica_arms_go_on_and_those_that_ask_for_one_say_that_none_has_them() {
    let cluster = reach::cluster().await;
    let beside = Beside::start(&cluster).await;
    let load = Load::start(&cluster, 8, 1000, Duration::from_millis(4)).await;
    load.until_handled(200).await;
    for primary in cluster.primaries().await.unwrap() {
        cluster.replica_of(&primary).await.unwrap().kill();
    }
    let (schedule, topic) = (Schedule::connect(&cluster.url()).await.unwrap(), topic(8));
    for number in 0..12_u32 {
        let ask = Durably::replicas(1).within(Duration::from_millis(100));
        let armed = schedule
            .arm(&topic, [format!("later-{number}")], Duration::from_secs(3600), &number)
            .durably(ask);
        let reached = armed.await.unwrap().receipt().unwrap().reached.expect("it was asked");
        assert_eq!(reached.replicas, 0);
    }
    let outcome = load.end().await;
    outcome.assert_kept();
    assert_eq!(outcome.doubled, 0);
    assert!(outcome.median() < 500, "half of them were later than {} ms", outcome.median());
    beside.end().await;
}

pub(crate) async fn set_flags(node: &LocalNode, flags: &str) {
    let set = node.command(["CONFIG", "SET", "notify-keyspace-events", flags]).await;
    assert!(!matches!(set, Ok(RedisReply::Error(_)) | Err(_)), "{set:?}");
}

/// Timers start by what is due, and not by what is said; and it is said which server is silent.
#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_replica_without_flags_is_named_and_its_timers_start_all_the_same() {
    let (log, _kept) = Capture::start();
    let cluster = reach::cluster().await;
    let schedule = reach::schedule(&cluster.url());
    let beside = Beside::scanned(&cluster, EventMode::Changes).await;
    let load = Load::start(&cluster, 8, MANY, Duration::from_millis(4)).await;
    let health = load.running.stats.health();
    load.until_handled(300).await;
    let primary = cluster.owner_of_key(FIRST).await.unwrap();
    let replica = cluster.replica_of(&primary).await.unwrap();
    set_flags(&replica, "").await;
    load.harm(cluster.failover(&replica)).await.unwrap();

    let silent = format!("127.0.0.1:{}", replica.port());
    eventually(PATIENCE, "it to be named", async || {
        log.lines().iter().any(|line| line.contains("no expired events") && line.contains(&silent))
    })
    .await;
    let is_blind = async || (health.mode(), health.heartbeat_received()) == (EventMode::ScanOnly, false);
    eventually(PATIENCE, "its canaries to be missed", is_blind).await;
    eventually(PATIENCE, "the report to say which", async || {
        // A server that is slow to answer fails the call, and the next one is as good.
        let listeners = schedule.listeners().await.unwrap_or_default();
        let nodes = listeners.iter().flat_map(|listener| &listener.nodes);
        let blind: Vec<_> = nodes.filter(|node| node.mode == "scan_only").map(|node| &node.node).collect();
        // Both listeners report it, one sooner than the other.
        blind == [&silent, &silent]
    })
    .await;
    load.until_more_handled(500).await;
    set_flags(&replica, FLAGS).await;
    eventually(PATIENCE, "it to be heard", async || health.mode() == EventMode::Expired).await;
    let outcome = load.enough().end().await;
    outcome.assert_kept();
    assert_eq!(outcome.doubled, 0);
    beside.end().await;
}
