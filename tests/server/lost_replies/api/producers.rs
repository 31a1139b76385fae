//! Arms and cancels.

use std::collections::BTreeSet;
use std::time::Duration;

use keylapse::internals::scripts;
use keylapse::{Arming, Cancelled, Durably, NewArm, TriggerKey};
use keylapse_support::{Then, command};

use super::{BOTH, Line, topic};

#[tokio::test(flavor = "multi_thread")]
async fn an_arm_without_a_reply_arms_once() {
    let (line, topic) = (Line::start().await, topic());
    let schedule = line.schedule();
    for (id, then) in ["1", "2"].into_iter().zip(BOTH) {
        line.lose(&scripts::ARM, then);
        let armed = schedule.arm(&topic, [id], Duration::ZERO, &1).await.expect("an answer");
        assert!(matches!(armed, Arming::Armed(_)), "{armed:?}");
    }
    line.lose(&scripts::ARM, Then::Close);
    let absent = schedule.arm(&topic, ["3"], Duration::ZERO, &1).only_if_absent().await.expect("an answer");
    assert!(matches!(absent, Arming::Armed(_)), "it does not find itself: {absent:?}");
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
        assert!(armed.iter().all(|one| one.as_ref().is_ok_and(Arming::is_armed)), "{armed:?}");
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

#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_without_a_reply_does_not_fail_the_arm() {
    let (line, topic) = (Line::start().await, topic());
    line.lose(&scripts::TRIGGER, Then::Close);
    let armed = line.schedule().arm(&topic, ["1"], Duration::from_secs(60), &1).await.expect("an answer");
    let Arming::Armed(receipt) = armed else { panic!("{armed:?}") };
    assert!(matches!(receipt.trigger, TriggerKey::Failed(_)), "it cannot be known: {receipt:?}");
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
