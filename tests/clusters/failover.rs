//! Primaries that are killed, stopped and replaced.

use std::time::Duration;

use keylapse::testing::{Cluster, Node};
use keylapse::{Durably, Schedule};

use crate::load::{Load, Outcome, topic};

/// Timers for eight seconds, two of them before the fault.
async fn during(fault: impl AsyncFnOnce(&Cluster, Node)) -> Outcome {
    // What a node is told before it is killed is there when it is started again.
    let config = ["appendonly yes", "appendfsync always"];
    let builder = config.iter().fold(Cluster::builder(), |builder, line| builder.config(line));
    let cluster = builder.start().await.unwrap();
    let load = Load::start(&cluster, 8, 2000, Duration::from_millis(4)).await;
    load.until_handled(400).await;
    let primary = cluster.owner_of_key("keylapse:{app.order/0}:due").await.unwrap();
    fault(&cluster, primary).await;
    let outcome = load.end().await;
    outcome.assert_none_early();
    outcome
}

#[tokio::test(flavor = "multi_thread")]
async fn p1_a_killed_primary_costs_no_timer() {
    during(async |_, primary| primary.kill()).await;
}

/// Another takes its place, and it becomes that one's replica when it goes on: so what is asked of it meanwhile is in vain.
#[tokio::test(flavor = "multi_thread")]
async fn p1_a_primary_that_is_stopped_replaced_and_continued_costs_no_timer() {
    during(async |cluster, primary| {
        let slot = cluster.slot_of("keylapse:{app.order/0}:due").await.unwrap();
        primary.stop().unwrap();
        cluster.wait_for_owner_other_than(&primary, slot).await.unwrap();
        primary.go_on().unwrap();
    })
    .await;
}

/// Nothing is lost by a failover that both agree on, and so nothing runs twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_failover_by_hand_costs_no_timer_and_doubles_none() {
    let outcome = during(async |cluster, primary| {
        let replica = cluster.replica_of(&primary).await.unwrap();
        cluster.failover(&replica).await.unwrap();
    })
    .await;
    assert_eq!(outcome.doubled, 0);
}

/// With all that it has in its append-only file.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_whose_nodes_get_other_addresses_one_by_one_is_followed() {
    during(async |cluster, _| {
        for node in cluster.nodes().into_iter().rev() {
            node.restart_elsewhere().await.unwrap();
            cluster.wait_until_ok().await.unwrap();
        }
    })
    .await;
}

/// Those that wait for replicas hold each other up, which is no reason to doubt the server.
#[tokio::test(flavor = "multi_thread")]
async fn arms_that_wait_for_replicas_that_are_gone_say_so() {
    let cluster = Cluster::builder().primaries(3).replicas_each(1).start().await.unwrap();
    let schedule = Schedule::connect(&cluster.url()).await.unwrap();
    let owner = cluster.owner_of_key("keylapse:{app.order/0}:due").await.unwrap();
    cluster.replica_of(&owner).await.unwrap().kill();
    let topic = topic(1);
    let arms = (0..4_u32).map(|number| {
        let (schedule, topic) = (schedule.clone(), topic.clone());
        async move {
            let hour = Duration::from_secs(3600);
            let armed = schedule.arm(&topic, [number.to_string()], hour, &number);
            armed.durably(Durably::replicas(1)).await.expect("it is armed").receipt().cloned()
        }
    });
    for receipt in futures::future::join_all(arms).await {
        assert_eq!(receipt.expect("it stands").reached.map(|reached| reached.replicas), Some(0));
    }
}
