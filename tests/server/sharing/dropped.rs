//! Whoever no longer waits for an answer leaves those beside it alone.

use futures::FutureExt;
use keylapse_support::{Reach, Then};

use super::scene::Scene;

/// On one thread, so that nothing is sent before it is waited for.
#[tokio::test]
async fn a_call_that_is_dropped_before_it_was_sent_is_never_sent() {
    let scene = Scene::start().await;
    let caller = scene.caller().await;
    assert_eq!(scene.direct.arm("standing").await, "Armed");
    let held = scene.hold(&caller).await;
    for mut call in [caller.arm("dropped"), caller.cancel("standing"), caller.reschedule("standing")] {
        assert_eq!((&mut call).now_or_never(), None);
    }
    let before = scene.standing("standing").await;
    let neighbours = [caller.arm("1"), caller.arm("2"), caller.arm_absent("standing")];
    assert_eq!(held.release(neighbours).await, ["Armed", "Armed", "Exists"]);
    assert_eq!(caller.arm("later").await, "Armed");
    let seen: Vec<_> = scene.take_seen().into_iter().map(|seen| seen.ids).collect();
    assert_eq!(seen, [vec!["1", "2"], vec!["standing"], vec!["later"]]);
    assert_eq!(scene.standing("standing").await, before);
    scene.none_stands(&["dropped"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_dropped_when_its_answer_is_lost_leaves_its_neighbours_the_truth() {
    for then in [Then::Stall, Then::Close] {
        let scene = Scene::start().await;
        let caller = scene.quick_caller().await;
        for id in ["2", "3"] {
            assert_eq!(scene.direct.arm(id).await, "Armed");
        }
        let held = scene.hold(&caller).await;
        scene.lose("dropped", then);
        let mut gathered = [caller.arm("1"), caller.arm("dropped"), caller.arm("2"), caller.cancel("3")];
        for call in &mut gathered {
            assert_eq!(call.now_or_never(), None);
        }
        let [first, dropped, second, third] = gathered;
        let neighbours = [first, second, third].map(tokio::spawn);
        held.release::<()>([]).await;
        scene.proxy.until_lost(1).await;
        drop(dropped);
        let mut answers = Vec::new();
        for call in neighbours {
            answers.push(call.await.unwrap());
        }
        assert_eq!(answers, ["Armed", "Replaced", "Cancelled"], "{then:?}");
        let arms = scene.take_seen().into_iter().filter(|seen| seen.script == "arm");
        let arms: Vec<_> = arms.map(|seen| (seen.how, seen.ids)).collect();
        // On a cluster they have calls of their own.
        let triggers = u8::from(!Reach::of_this_run().is_cluster());
        let both = ["r0", "r1"]
            .map(|how| (format!("{how}{triggers}"), ["1", "dropped", "2"].map(String::from).to_vec()));
        assert_eq!(arms, both, "it was repeated as it was sent");
        scene.all_stand(&["1", "2", "dropped"]).await;
        assert_eq!(caller.cancel("dropped").await, "Cancelled");
        assert_eq!(caller.cancel("dropped").await, "NotArmed", "it stood once");
    }
}
