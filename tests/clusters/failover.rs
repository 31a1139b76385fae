//! Primaries that are killed, stopped and replaced.

use std::time::Duration;

use keylapse::health::EventMode;
use keylapse::timers::Durably;
use keylapse_support::eventually;
use keylapse_testing::{LocalCluster, LocalNode, RedisReply};

use crate::attached::beside::Beside;
use crate::load::{FIRST, Load, topic};
use crate::outcome::Outcome;
use crate::reach::{self, as_app, assert_nothing_refused, cluster, cluster_builder};
use crate::support::PATIENCE;

/// Timers for eight seconds, two of them before the fault.
async fn during(fault: impl AsyncFnOnce(&LocalCluster, &Load, LocalNode)) -> Outcome {
    // What a node is told before it is killed is there when it is started again.
    let config = ["appendonly yes", "appendfsync always"];
    let builder = config.iter().fold(cluster_builder(), |builder, line| builder.config(line));
    let cluster = builder.start().await.unwrap();
    let load = Load::start(&cluster, 8, 2000, Duration::from_millis(4)).await;
    load.until_handled(400).await;
    let primary = cluster.owner_of_key(FIRST).await.unwrap();
    let harm = async {
        fault(&cluster, &load, primary).await;
        cluster.wait_until_ok().await.unwrap();
    };
    load.harm(harm).await;
    let outcome = load.end().await;
    outcome.assert_kept();
    assert_nothing_refused(&cluster.nodes()).await;
    outcome
}

#[tokio::test(flavor = "multi_thread")]
async fn p1_a_killed_primary_costs_no_timer() {
    during(async |cluster, load, primary| {
        load.kill(&primary);
        replaced(cluster, &primary).await;
    })
    .await;
}

/// Another takes its place, and it becomes that one's replica when it goes on: so what is asked of it meanwhile is in vain.
#[tokio::test(flavor = "multi_thread")]
async fn p1_a_primary_that_is_stopped_replaced_and_continued_costs_no_timer() {
    during(async |cluster, _, primary| {
        primary.suspend().unwrap();
        replaced(cluster, &primary).await;
        primary.resume().unwrap();
    })
    .await;
}

/// Nothing is lost by a failover that both agree on, and so nothing runs twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_failover_by_hand_costs_no_timer_and_doubles_none() {
    let outcome = during(async |cluster, _, primary| {
        let replica = cluster.replica_of(&primary).await.unwrap();
        cluster.failover(&replica).await.unwrap();
    })
    .await;
    assert_eq!(outcome.doubled, 0);
}

/// With all that it has in its append-only file.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_whose_nodes_get_other_addresses_one_by_one_is_followed() {
    during(async |cluster, _, _| {
        let beside = Beside::scanned(cluster, EventMode::Changes).await;
        let harm = async {
            for node in cluster.nodes().into_iter().rev() {
                node.restart_elsewhere().await.unwrap();
                cluster.wait_until_ok().await.unwrap();
            }
        };
        beside.while_written(harm).await;
        beside.end().await;
    })
    .await;
}

/// Waits until another has what this primary had.
async fn replaced(cluster: &LocalCluster, primary: &LocalNode) -> LocalNode {
    let slot = cluster.slot_of(FIRST).await.unwrap();
    cluster.wait_for_owner_other_than(primary, slot).await.unwrap()
}

/// How many scripts a node has run.
async fn scripts(node: &LocalNode) -> u64 {
    let Ok(RedisReply::Bulk(said)) = node.command(["INFO", "commandstats"]).await else {
        panic!("an answer")
    };
    let said = String::from_utf8_lossy(&said).into_owned();
    let calls =
        said.split_once("cmdstat_evalsha:calls=").and_then(|(_, rest)| rest.split(',').next()?.parse().ok());
    calls.unwrap_or_default()
}

/// Those that wait for replicas hold each other up, which is no reason to doubt the server, and to ask again.
#[tokio::test(flavor = "multi_thread")]
async fn an_arm_behind_one_that_waits_for_a_replica_that_is_gone_says_how_far_it_came() {
    let cluster = cluster().await;
    let schedule = reach::schedule(&as_app(&cluster.url()));
    let owner = cluster.owner_of_key(FIRST).await.unwrap();
    cluster.replica_of(&owner).await.unwrap().kill();
    let arm = |number: u32| {
        let schedule = schedule.clone();
        async move {
            let ask = Durably::replicas(1).within(Duration::from_secs(2));
            let hour = Duration::from_secs(3600);
            let topic = topic(1).marker_keys(false);
            let armed = schedule.arm(&topic, [number.to_string()], hour, &number).durably(ask).await;
            armed.expect("it is armed").receipt().and_then(|receipt| receipt.reached)
        }
    };
    let first = tokio::spawn(arm(1));
    eventually(PATIENCE, "the first to wait", async || {
        let clients = owner.command(["INFO", "clients"]).await;
        matches!(clients, Ok(RedisReply::Bulk(said)) if String::from_utf8_lossy(&said).contains("blocked_clients:1"))
    })
    .await;
    let before = scripts(&owner).await;
    let second = arm(2).await;
    assert_eq!(scripts(&owner).await - before, 2, "the partition's meta, and the arm, once");
    assert_eq!(
        [first.await.unwrap(), second].map(|reached| reached.map(|one| one.replicas)),
        [Some(0), Some(0)]
    );
}
