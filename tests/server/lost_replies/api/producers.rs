//! Arms and cancels.

use std::collections::BTreeSet;
use std::future::IntoFuture;
use std::time::Duration;

use keylapse::timers::{Durably, MarkerKey};
use keylapse::{ArmResult, Cancelled, NewArm};
use keylapse_support::{Then, command, skipped_on_a_cluster};
use keylapse_wire::scripts;

use super::{BOTH, Line, topic};

#[tokio::test(flavor = "multi_thread")]
async fn an_arm_without_a_reply_arms_once() {
    let (line, topic) = (Line::start().await, topic());
    let schedule = line.schedule();
    for (id, then) in ["1", "2"].into_iter().zip(BOTH) {
        line.lose(&scripts::ARM, then);
        let armed = schedule.arm(&topic, [id], Duration::ZERO, &1).await.expect("an answer");
        assert!(matches!(armed, ArmResult::Armed(_)), "{armed:?}");
    }
    line.lose(&scripts::ARM, Then::Close);
    let absent = schedule.arm(&topic, ["3"], Duration::ZERO, &1).only_if_absent().await.expect("an answer");
    assert!(matches!(absent, ArmResult::Armed(_)), "it does not find itself: {absent:?}");
    assert_eq!(line.proxy.lost(), 3);
    let (ids, stats) = line.run_all(&topic, 3).await;
    assert_eq!((ids, stats.handled), (vec!["1 1".into(), "2 1".into(), "3 1".into()], 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_arms_without_a_reply_arm_once() {
    let (line, topic) = (Line::start().await, topic());
    let schedule = line.schedule();
    for (first, then) in [0, 300].into_iter().zip(BOTH) {
        line.lose(&scripts::ARM, then);
        let arms = (first..first + 300).map(|id| NewArm::new([id.to_string()], Duration::ZERO, 1));
        let armed = schedule.arm_many(&topic, arms).await.expect("answers");
        assert!(armed.iter().all(|one| one.as_ref().is_ok_and(ArmResult::is_armed)), "{armed:?}");
    }
    assert_eq!(line.proxy.lost(), 2);
    let (ran, stats) = line.run_all(&topic, 600).await;
    assert_eq!((ran.iter().collect::<BTreeSet<_>>().len(), stats.handled), (600, 600));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_arm_reports_what_it_does_not_know_to_have_reached() {
    let (line, topic) = (Line::start().await, topic());
    let schedule = line.schedule();
    for lost in ["EVALSHA", "WAIT"] {
        line.proxy.lose_reply(command(lost), Then::Close);
        let asked = schedule.arm(&topic, ["1"], Duration::ZERO, &1).durably(Durably::replicas(0));
        let armed = asked.await.expect("an answer");
        let reached = armed.receipt().and_then(|receipt| receipt.reached).expect("a report");
        assert!(!reached.local_fsync && reached.replicas == 0, "{reached:?}");
    }
    assert_eq!(line.proxy.lost(), 2);
    assert_eq!(line.run_all(&topic, 1).await.1.handled, 1);
}

/// As a timeout around it does that is shorter than the client's patience.
#[tokio::test(flavor = "multi_thread")]
async fn an_arm_that_is_dropped_half_way_stands_with_its_trigger_key_or_not_at_all() {
    if skipped_on_a_cluster("a trigger key has a call of its own, as it is in another slot") {
        return;
    }
    let (line, topic) = (Line::start().await, topic());
    let (schedule, later) = (line.schedule(), Duration::from_secs(600));
    let dropped = async |id: &'static str, delay| {
        line.lose(&scripts::ARM, Then::Stall);
        let arm = schedule.arm(&topic, [id], delay, &1).into_future();
        tokio::time::timeout(Duration::from_millis(100), arm).await.expect_err("it has no answer");
    };
    let left = async |id: &str| -> i64 {
        let left = line.server.cmd(&["TTL", &format!("app:line:{id}")]).await;
        redis::from_redis_value(left).expect("a number")
    };
    dropped("1", later).await;
    assert!(line.direct.look_up(&topic, ["1"]).await.expect("an answer").is_some());
    assert!((500..=600).contains(&left("1").await));
    // One that was to replace a timer has taken over the key of that.
    let armed = schedule.arm(&topic, ["2"], Duration::from_secs(60), &1).await.expect("an answer");
    assert!(armed.is_armed());
    dropped("2", later).await;
    assert!(left("2").await > 500);
    // What is armed afterwards has the last word.
    dropped("3", later).await;
    let again = schedule.arm(&topic, ["3"], Duration::from_secs(60), &1).await.expect("an answer");
    assert!(matches!(&again, ArmResult::Replaced(receipt) if receipt.marker == MarkerKey::Set), "{again:?}");
    assert!(left("3").await <= 60);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_without_a_reply_cancels_once() {
    let (line, topic) = (Line::start().await, topic());
    for (id, then) in ["1", "2"].into_iter().zip(BOTH) {
        line.arm(&topic, id).await;
        line.lose(&scripts::CANCEL, then);
        let cancelled = line.schedule().cancel(&topic, [id]).await.expect("an answer");
        assert_eq!(cancelled, Cancelled::Cancelled, "it does not find its own work done");
    }
    assert_eq!(line.proxy.lost(), 2);
    line.arm(&topic, "3").await;
    assert_eq!(line.run_all(&topic, 1).await.0, ["3 1"]);
    line.assert_gone(&topic, &["1", "2"]).await;
}
