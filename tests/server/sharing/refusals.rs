//! What is refused is refused alone.

use keylapse::Client;
use keylapse::inside::ClientInside as _;
use keylapse_support::skipped_on_a_cluster;
use std::time::Duration;

use futures::future::{join, join_all};
use keylapse_wire::Store;
use keylapse_wire::time::MAX_DEADLINE_MS;

use super::scene::{LATER, Scene, word_of};

#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_cancels_although_it_refuses_what_goes_with_it() {
    let scene = Scene::start().await;
    let caller = scene.caller().await;
    for id in ["1", "2", "3"] {
        assert_eq!(scene.direct.arm(id).await, "Armed");
    }
    let held = scene.hold(&caller).await;
    scene.server.cmd(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let calls = [
        caller.arm("new"),
        caller.cancel("1"),
        caller.arm_absent("newer"),
        caller.reschedule("3"),
        caller.cancel("2"),
        caller.cancel("nobody"),
        caller.arm("3"),
    ];
    let answers = held.release(calls).await;
    let full = "OutOfMemory";
    assert_eq!(answers, [full, "Cancelled", full, full, "Cancelled", "NotArmed", full]);
    let seen = scene.take_seen();
    assert_eq!(seen.iter().map(|seen| seen.script).collect::<Vec<_>>()[..3], ["arm", "cancel", "arm"]);
    assert_eq!(seen[1].ids, ["1", "2", "nobody"], "they went together");
    scene.none_stands(&["1", "2", "new", "newer"]).await;
    scene.all_stand(&["3"]).await;
}

/// By the clock of a server that is in its last year.
#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_that_the_server_cannot_keep_fails_alone() {
    if skipped_on_a_cluster("scripts cannot read the clock of this test, a key, beside those of another slot")
    {
        return;
    }
    const CLOCK: &str = "app:clock";
    let scene = Scene::start().await;
    let year = Duration::from_secs(365 * 86_400);
    let now = (Duration::from_millis(MAX_DEADLINE_MS) - year).as_micros().to_string();
    scene.server.cmd(&["SET", CLOCK, &now]).await;
    let store = Store::at(&scene.proxy.app_url()).unwrap().with_clock_key(CLOCK);
    let caller = scene.caller_of(Client::of_store(store).retry_for(Duration::from_secs(60))).await;
    // Its scripts are others than those that were loaded.
    for (call, answer) in [(caller.arm("moved"), "Armed"), (caller.arm("far"), "Armed")] {
        assert_eq!(call.await, answer);
    }
    assert_eq!(caller.reschedule("moved").await, "Rescheduled");
    let arms = ["1", "too-far-1", "2", "3", "too-far-2", "far"].map(|id| {
        let delay = if id.contains("far") { year + LATER } else { LATER };
        caller.armed_with(id, delay, "")
    });
    let moved = caller.schedule.reschedule(&caller.topic, ["moved"], year + LATER);
    let (arms, moved) = join(join_all(arms), moved).await;
    let arms: Vec<_> = arms.iter().map(word_of).collect();
    assert_eq!(arms, ["Armed", "Invalid", "Armed", "Armed", "Invalid", "Invalid"]);
    let error = moved.unwrap_err();
    assert!(error.to_string().contains("beyond the year 2248"), "{error}");
    scene.none_stands(&["too-far-1", "too-far-2"]).await;
    scene.all_stand(&["1", "2", "3", "far", "moved"]).await;
}

/// As after a restart: some are there, some are not, and the topic's names are gone.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_on_the_server_is_supplied_to_calls_that_went_together() {
    let scene = Scene::start().await;
    for flush in [&["SCRIPT", "FLUSH"][..], &["FLUSHALL"], &["SCRIPT", "FLUSH"]] {
        let caller = scene.caller().await;
        let held = scene.hold(&caller).await;
        scene.server.cmd(flush).await;
        let calls = [caller.arm("1"), caller.arm_absent("2"), caller.cancel("3"), caller.reschedule("4")];
        assert_eq!(held.release(calls).await, ["Armed", "Armed", "NotArmed", "NotArmed"], "{flush:?}");
        for id in ["1", "2"] {
            assert_eq!(caller.cancel(id).await, "Cancelled");
        }
        scene.take_seen();
    }
}
