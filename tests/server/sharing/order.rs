//! What concerns one key happens in the order in which it was asked, whatever it is.

use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use keylapse::NewArm;
use keylapse::timers::TimerPhase;
use keylapse_support::{Direction, Then, eventually};

use super::scene::{Caller, LATER, Scene, word_of};
use crate::server::support::PATIENCE;

/// Of an arm of many.
fn arm_many(caller: &Caller, ids: &[&'static str], only_if_absent: bool) -> BoxFuture<'static, String> {
    let (Caller { schedule, topic }, ids) = (caller.clone(), ids.to_vec());
    async move {
        let arms = ids.iter().map(|id| NewArm::new([*id], LATER, String::new()));
        let many = schedule.arm_many(&topic, arms);
        let answers = if only_if_absent { many.only_if_absent().await } else { many.await };
        answers.expect("answers").iter().map(word_of).collect::<Vec<_>>().join(", ")
    }
    .boxed()
}

/// All kinds after each other, beside others of other keys.
fn calls(caller: &Caller) -> (Vec<BoxFuture<'static, String>>, Vec<&'static str>) {
    [
        (caller.cancel("k"), "NotArmed"),
        (caller.arm("k"), "Armed"),
        (caller.arm("other"), "Armed"),
        (caller.cancel("k"), "Cancelled"),
        (caller.reschedule("k"), "NotArmed"),
        (caller.arm_absent("k"), "Armed"),
        (caller.arm("k"), "Replaced"),
        (caller.reschedule("other"), "Rescheduled"),
        (caller.arm_absent("k"), "Exists"),
        (caller.cancel("k"), "Cancelled"),
        (caller.cancel("other"), "Cancelled"),
        (caller.arm("k"), "Armed"),
        (caller.reschedule("k"), "Rescheduled"),
    ]
    .into_iter()
    .unzip()
}

async fn assert_moved(scene: &Scene, id: &str) {
    let timer = scene.standing(id).await.expect("it is armed");
    let now = scene.now().await;
    let later = now + LATER + Duration::from_secs(60);
    assert!(matches!(timer.phase, TimerPhase::Waiting(at) if at > later), "{:?} at {now:?}", timer.phase);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_one_key_that_gather_end_as_if_made_one_after_the_other() {
    let scene = Scene::start().await;
    let caller = scene.caller().await;
    let held = scene.hold(&caller).await;
    let (calls, expected) = calls(&caller);
    assert_eq!(held.release(calls).await, expected);
    assert_moved(&scene, "k").await;
    scene.none_stands(&["other"]).await;
}

/// The first goes alone, and the others do not wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn calls_of_one_key_that_are_joined_on_a_quiet_line_end_as_if_made_one_after_the_other() {
    let scene = Scene::start().await;
    let caller = scene.caller().await;
    for _ in 0..20 {
        let (calls, expected) = calls(&caller);
        assert_eq!(join_all(calls).await, expected);
        assert_moved(&scene, "k").await;
        assert_eq!(scene.direct.cancel("k").await, "Cancelled");
    }
}

/// A call whose answer is lost is repeated before the next of its key goes.
#[tokio::test(flavor = "multi_thread")]
async fn calls_of_one_key_keep_their_order_though_answers_are_lost() {
    let scene = Scene::start().await;
    for then in [Then::Close, Then::Stall, Then::Reset] {
        let caller = scene.quick_caller().await;
        let held = scene.hold(&caller).await;
        scene.lose("k", then);
        let (calls, expected) = calls(&caller);
        for _ in 0..3 {
            scene.lose("k", then);
        }
        assert_eq!(held.release(calls).await, expected, "{then:?}");
        assert_moved(&scene, "k").await;
        assert_eq!(caller.cancel("k").await, "Cancelled");
    }
    assert_eq!(scene.proxy.lost(), 12);
}

#[tokio::test(flavor = "multi_thread")]
async fn arms_of_many_keep_their_place_between_single_calls() {
    let scene = Scene::start().await;
    let caller = scene.caller().await;
    let held = scene.hold(&caller).await;
    let (calls, expected): (Vec<_>, Vec<_>) = [
        (caller.arm("k"), "Armed"),
        (arm_many(&caller, &["j", "k"], false), "Armed, Replaced"),
        (caller.cancel("k"), "Cancelled"),
        (arm_many(&caller, &["k", "j", "i"], true), "Armed, Exists, Armed"),
        (arm_many(&caller, &["k", "k"], false), "Replaced, Replaced"),
        (caller.cancel("i"), "Cancelled"),
        (caller.arm_absent("j"), "Exists"),
        (caller.cancel("j"), "Cancelled"),
        (caller.reschedule("k"), "Rescheduled"),
        (arm_many(&caller, &["i", "j", "k"], true), "Armed, Armed, Exists"),
    ]
    .into_iter()
    .unzip();
    assert_eq!(held.release(calls).await, expected);
    assert_moved(&scene, "k").await;
    scene.all_stand(&["i", "j"]).await;
}

/// Neither has been executed when the line breaks.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_keeps_its_place_behind_a_lone_one_of_its_key_that_never_arrived() {
    let scene = Scene::start().await;
    let connections = || scene.proxy.requests()["AUTH"];
    for n in 0..10 {
        let (caller, id) = (scene.caller().await, format!("k{n}"));
        scene.proxy.stall(Direction::Requests);
        let calls = tokio::spawn(join_all([caller.arm(&id), caller.cancel(&id)]));
        scene.until_seen(&id).await;
        let before = connections();
        scene.proxy.cut();
        eventually(PATIENCE, "the line to be broken", async || connections() > before).await;
        scene.proxy.resume();
        assert_eq!(calls.await.unwrap(), ["Armed", "Cancelled"], "{n}");
        scene.none_stands(&[&id]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_keeps_its_place_behind_a_lone_one_of_its_key_whose_script_is_missing() {
    let scene = Scene::start().await;
    let caller = scene.caller().await;
    scene.server.cmd(&["SCRIPT", "FLUSH"]).await;
    assert_eq!(caller.cancel("k").await, "NotArmed", "this one is there again");
    assert_eq!(join_all([caller.arm("k"), caller.cancel("k")]).await, ["Armed", "Cancelled"]);
    scene.none_stands(&["k"]).await;
}
