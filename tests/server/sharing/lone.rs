//! A call that finds nothing on its way.

use futures::FutureExt;
use keylapse_support::{Direction, eventually, skipped_on_a_cluster};
use redis::Value;

use super::scene::Scene;
use crate::server::support::PATIENCE;

/// Of a runtime of one thread, on which nothing happens meanwhile.
fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lone_call_is_one_request_with_its_trigger_key() {
    if skipped_on_a_cluster("a trigger key has a call of its own, as it is in another slot") {
        return;
    }
    let scene = Scene::start().await;
    let caller = scene.caller().await;
    let exists = async || scene.server.cmd(&["EXISTS", "app:share:1"]).await == Value::Int(1);
    let calls = [
        (caller.arm("1"), "Armed", true),
        (caller.arm("1"), "Replaced", true),
        (caller.arm_absent("1"), "Exists", true),
        (caller.reschedule("1"), "Rescheduled", true),
        (caller.cancel("1"), "Cancelled", false),
        (caller.cancel("1"), "NotArmed", false),
        (caller.arm_absent("1"), "Armed", true),
    ];
    for (call, answer, is_set) in calls {
        scene.proxy.reset_counts();
        assert_eq!(call.await, answer);
        assert_eq!(scene.proxy.requests(), [("EVALSHA".to_owned(), 1)].into(), "{answer}");
        assert_eq!(scene.proxy.batches(), 1, "{answer}: in one piece");
        assert_eq!(exists().await, is_set, "{answer}: the trigger key");
    }
}

/// By the caller's own poll: no task and no timer comes between.
#[tokio::test]
async fn a_lone_call_is_on_its_way_once_it_was_polled() {
    let scene = Scene::start().await;
    let caller = scene.caller().await;
    let (mut call, before) = (caller.arm("1"), tasks());
    assert_eq!((&mut call).now_or_never(), None);
    assert_eq!(tasks(), before, "nobody else carries it");
    scene.until_seen("1").await;
    let stands = async || scene.standing("1").await.is_some();
    eventually(PATIENCE, "the timer to stand", stands).await;
    assert_eq!(call.await, "Armed");
}

/// On one thread: else the answer may come within the only poll.
#[tokio::test]
async fn a_lone_call_that_nobody_polls_holds_up_no_other_not_even_of_its_key() {
    let scene = Scene::start().await;
    let caller = scene.caller().await;
    let mut unpolled = caller.arm("1");
    assert_eq!((&mut unpolled).now_or_never(), None);
    scene.until_seen("1").await;
    let others = async {
        for _ in 0..3 {
            assert_eq!(caller.arm("2").await, "Armed");
            assert_eq!(caller.cancel("2").await, "Cancelled");
        }
        assert_eq!(caller.cancel("1").await, "Cancelled", "it was made later");
        assert_eq!(caller.arm_absent("1").await, "Armed");
    };
    tokio::time::timeout(PATIENCE, others).await.expect("they are not held up");
    assert_eq!(unpolled.await, "Armed", "what it was answered at the time");
    scene.all_stand(&["1"]).await;
}

#[tokio::test]
async fn a_lone_call_that_is_dropped_without_an_answer_lets_the_next_go_alone() {
    let scene = Scene::start().await;
    let caller = scene.caller().await;
    scene.proxy.stall(Direction::Replies);
    for id in ["1", "2", "3"] {
        let (mut dropped, before) = (caller.arm(id), tasks());
        assert_eq!((&mut dropped).now_or_never(), None);
        assert_eq!(tasks(), before, "nobody else carries it");
        scene.until_seen(id).await;
    }
    scene.proxy.resume();
    assert_eq!(caller.cancel("1").await, "Cancelled");
    let all: Vec<_> = scene.take_seen().into_iter().map(|seen| seen.ids).collect();
    assert_eq!(all, [["1"], ["2"], ["3"], ["1"]]);
    scene.all_stand(&["2", "3"]).await;
}

/// It is the one that connects.
#[tokio::test(flavor = "multi_thread")]
async fn a_lone_call_that_nobody_polls_while_it_connects_holds_up_no_other() {
    let scene = Scene::start().await;
    let caller = scene.caller().await;
    scene.proxy.cut();
    // The loss is noticed by a call, and not yet made good.
    scene.proxy.stall(Direction::Both);
    let mut unpolled = caller.arm("1");
    let connections = || scene.proxy.requests()["AUTH"];
    let before = connections();
    let connecting = async || {
        assert_eq!((&mut unpolled).now_or_never(), None);
        connections() > before
    };
    eventually(PATIENCE, "it to connect", connecting).await;
    scene.proxy.resume();
    let other = tokio::time::timeout(PATIENCE, caller.arm("2")).await;
    assert_eq!(other.expect("it is not held up"), "Armed");
}
