//! A schedule that several runtimes share. What has gathered is carried by a task of one of them, and that one may
//! stand still, or end.

use std::time::Duration;

use futures::FutureExt;
use keylapse::timers::Durably;
use keylapse_support::{Direction, Then, eventually};
use tokio::runtime::{Builder, Runtime};

use super::scene::{Caller, LATER, Scene, word_of};
use crate::server::support::PATIENCE;

/// The first call that a driver carries.
const DRIVEN: &str = "driven";

/// A runtime that runs only while it is told to.
fn standing_still() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Makes calls, of which the first goes alone, and the second has this runtime drive the others. That one is on its
/// way when the others are made, and this runtime runs no more.
async fn driven_by<T>(scene: &Scene, runtime: &Runtime, calls: &mut [impl Future<Output = T> + Unpin]) {
    scene.proxy.stall(Direction::Replies);
    let (alone, others) = calls.split_first_mut().expect("a call");
    let (first, others) = others.split_first_mut().expect("a call to be driven");
    assert!(alone.now_or_never().is_none());
    {
        let _there = runtime.enter();
        assert!(first.now_or_never().is_none());
    }
    run(runtime, scene.until_seen(DRIVEN));
    for call in others {
        assert!(call.now_or_never().is_none());
    }
    scene.proxy.resume();
}

/// Runs it until then.
fn run(runtime: &Runtime, until: impl Future<Output = ()>) {
    tokio::task::block_in_place(|| runtime.block_on(until));
}

/// All answers, soon.
async fn answers<T>(calls: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let all = futures::future::join_all(calls);
    tokio::time::timeout(PATIENCE, all).await.expect("they have answers")
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_were_not_sent_by_a_runtime_that_ends_go_by_themselves() {
    let scene = Scene::start().await;
    let caller = scene.caller().await;
    assert_eq!(scene.direct.arm("there").await, "Armed");
    let ending = standing_still();
    let mut calls = vec![
        caller.arm("1"),
        caller.arm(DRIVEN),
        caller.arm("2"),
        caller.arm_absent("there"),
        caller.cancel("nobody"),
        caller.reschedule("there"),
    ];
    driven_by(&scene, &ending, &mut calls).await;
    ending.shutdown_background();
    let expected = ["Armed", "Armed", "Armed", "Exists", "NotArmed", "Rescheduled"];
    assert_eq!(answers(calls).await, expected);
    assert_eq!(
        answers([caller.cancel("1"), caller.cancel("2")]).await,
        ["Cancelled"; 2],
        "and so do later ones"
    );
}

/// What was sent has been executed, and the answer is lost with the runtime.
#[tokio::test(flavor = "multi_thread")]
async fn calls_that_were_sent_by_a_runtime_that_ends_are_told_what_was_done() {
    let scene = Scene::start().await;
    let caller = scene.quick_caller().await;
    for id in ["there", "cancelled", "moved", "replaced"] {
        assert_eq!(scene.direct.arm(id).await, "Armed");
    }
    let ending = standing_still();
    let mut calls = vec![
        caller.arm("alone"),
        caller.arm(DRIVEN),
        caller.arm("armed"),
        caller.arm("replaced"),
        caller.arm_absent("absent"),
        caller.arm_absent("there"),
        caller.cancel("cancelled"),
        caller.reschedule("moved"),
    ];
    scene.lose("armed", Then::Close);
    let connections = || scene.proxy.requests()["AUTH"];
    let before = connections();
    driven_by(&scene, &ending, &mut calls).await;
    // It runs until the answer is lost and there is another line, and never again.
    run(&ending, scene.proxy.until_lost(1));
    run(&ending, eventually(PATIENCE, "another line", async || connections() > before));
    ending.shutdown_background();
    let expected = ["Armed", "Armed", "Armed", "Replaced", "Armed", "Exists", "Cancelled", "Rescheduled"];
    assert_eq!(answers(calls).await, expected);
    scene.none_stands(&["cancelled"]).await;
    scene.all_stand(&["alone", "armed", "replaced", "absent", "there", "moved"]).await;
}

/// WAIT tells of all writes of its connection, so that a durable arm shares no call.
#[tokio::test(flavor = "multi_thread")]
async fn a_durable_arm_does_not_go_with_others() {
    let scene = Scene::start().await;
    let caller = scene.caller().await;
    let shared: Vec<_> = (0..100).map(|id| tokio::spawn(caller.arm(format!("{id}")))).collect();
    assert_eq!(durably(&caller, "durable", 0).await, "Armed");
    for call in shared {
        assert_eq!(call.await.unwrap(), "Armed");
    }
    let seen = scene.take_seen().into_iter().map(|seen| seen.ids);
    let with_it: Vec<_> = seen.filter(|ids| ids.iter().any(|id| id == "durable")).collect();
    assert_eq!(with_it, [["durable"]]);
}

/// There are no replicas: WAIT takes as long as it may.
#[tokio::test(flavor = "multi_thread")]
async fn a_durable_arm_that_waits_for_replicas_holds_up_nobody() {
    let scene = Scene::start().await;
    let caller = scene.caller().await;
    let durable = tokio::spawn({
        let caller = caller.clone();
        async move { durably(&caller, "durable", 1).await }
    });
    let waits = async || scene.proxy.requests().contains_key("WAIT");
    eventually(PATIENCE, "the WAIT", waits).await;
    for n in 0..3 {
        let calls = (0..10).map(|id| caller.arm(format!("{n}-{id}")));
        assert_eq!(answers(calls).await, ["Armed"; 10]);
    }
    assert_eq!(answers([caller.cancel("durable")]).await, ["Cancelled"], "also of its key");
    assert!(!durable.is_finished(), "it waits all the while");
    assert_eq!(durable.await.unwrap(), "Armed");
}

async fn durably(caller: &Caller, id: &str, replicas: u32) -> String {
    let (id, payload) = ([id], String::new());
    let arm = caller.schedule.arm(&caller.topic, id, LATER, &payload);
    let within = Duration::from_secs(4);
    word_of(&arm.durably(Durably::replicas(replicas).within(within)).await)
}

/// The driver's task is dropped before its first poll.
#[tokio::test(flavor = "multi_thread")]
async fn calls_go_on_though_their_runtime_ended_before_it_ran() {
    let scene = Scene::start().await;
    let caller = scene.caller().await;
    let ending = standing_still();
    scene.proxy.stall(Direction::Replies);
    let (mut alone, mut driven) = (caller.arm("1"), caller.arm("2"));
    assert_eq!((&mut alone).now_or_never(), None);
    {
        let _there = ending.enter();
        assert_eq!((&mut driven).now_or_never(), None);
    }
    ending.shutdown_background();
    scene.proxy.resume();
    assert_eq!(answers([alone, driven]).await, ["Armed"; 2]);
    assert_eq!(answers([caller.cancel("1"), caller.cancel("2")]).await, ["Cancelled"; 2]);
}

/// Much less than a call may take, and than connecting may.
const SOON: Duration = Duration::from_secs(2);

/// Arms there, within a time that no repeat takes.
async fn arms_soon(caller: &Caller, id: &str) {
    let armed = tokio::time::timeout(SOON, caller.arm(id)).await;
    assert_eq!(armed.expect("an answer, soon"), "Armed");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_answered_though_the_runtime_that_made_the_first_stands_still() {
    let scene = Scene::start().await;
    let caller = Caller::of(&scene.client());
    let still = standing_still();
    run(&still, async { assert_eq!(caller.arm("first").await, "Armed") });
    for id in ["second", "third"] {
        arms_soon(&caller, id).await;
    }
    still.shutdown_background();
}

/// The first call of all is polled once, and has begun to connect.
#[tokio::test(flavor = "multi_thread")]
async fn calls_are_answered_though_whoever_connects_is_polled_no_more() {
    let scene = Scene::start().await;
    let caller = Caller::of(&scene.client());
    let still = standing_still();
    let mut first = Box::pin(caller.arm("first"));
    {
        let _there = still.enter();
        assert_eq!((&mut first).now_or_never(), None);
    }
    arms_soon(&caller, "second").await;
    assert_eq!(first.await, "Armed");
    still.shutdown_background();
}

/// As in a server that gives each of its threads a runtime.
#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_worker_holds_up_no_call_of_others() {
    let scene = Scene::start().await;
    let caller = Caller::of(&scene.client());
    let blocked = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (wake, woken) = std::sync::mpsc::channel::<()>();
    let (begun, begins) = tokio::sync::oneshot::channel();
    blocked.spawn({
        let caller = caller.clone();
        async move {
            assert_eq!(caller.arm("first").await, "Armed");
            begun.send(()).ok();
            woken.recv().ok();
        }
    });
    begins.await.expect("the first call is answered");
    arms_soon(&caller, "second").await;
    drop(wake);
    blocked.shutdown_background();
}
