//! A claim that the server never had which was promoted.

use std::time::Duration;

use futures::future::join_all;
use keylapse::timers::{Durably, TimerPhase};
use keylapse::{Lapse, Listener};
use keylapse_support::eventually;
use keylapse_testing::{LocalNode, SentinelGroup};

use crate::load::topic;
use crate::reach;
use crate::support::{PATIENCE, Running, gated};

/// Replicas that are gone when the timer is claimed, and have the arm on disk, take the place of the one that knows of the
/// claim. So the timer is claimed once more, and the first attempt's token is nobody's.
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_whose_claim_a_failover_has_lost_changes_nothing_when_it_ends() {
    let config = ["appendonly yes", "appendfsync always"];
    let builder = config.iter().fold(SentinelGroup::builder(), |builder, line| builder.config(line));
    let group = builder.start().await.unwrap();
    let (handler, mut reported, gate) = gated(|lapse: &Lapse<u32>| (lapse.id(), lapse.attempt()));
    // A failover may last longer than a lease of seconds, whose end would stop the first attempt.
    let patient = topic(1).lease(PATIENCE);
    let running = Running::start(Listener::builder(group.url()).on(patient, handler));
    running.until_anchored().await;
    let schedule = reach::schedule(&group.url());
    let soon = Duration::from_millis(700);
    let armed = schedule.arm(&topic(1), ["1"], soon, &1).durably(Durably::replicas(2)).await.unwrap();
    assert_eq!(armed.receipt().unwrap().reached.unwrap().replicas, 2);

    let (master, replicas) = (&group.servers()[0], &group.servers()[1..]);
    replicas.iter().for_each(LocalNode::kill);
    let first = reported.next().await;
    master.kill();
    for started in join_all(replicas.iter().map(LocalNode::restart)).await {
        started.unwrap();
    }
    group.wait_for_master_other_than(master).await.unwrap();
    assert_eq!(reported.next().await, first, "the same arming, and it has not failed");

    let present = async || schedule.look_up(&topic(1), ["1"]).await.unwrap().map(|timer| timer.phase);
    gate.notify_one();
    running
        .until("the first to count for nothing", |stats| stats.total().fenced + stats.total().gone == 1)
        .await;
    let now = present().await;
    assert!(matches!(now, Some(TimerPhase::Running(_))), "{now:?}: it is the second's");
    gate.notify_one();
    eventually(PATIENCE, "the second to count", async || present().await.is_none()).await;
    running.stop().await.unwrap();
}
