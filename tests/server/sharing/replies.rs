//! The answers to calls that went together are lost: each caller is told what the first execution did.

use std::time::Duration;

use keylapse_support::{Then, command};

use super::scene::{LATER, Scene};

const WAYS: [Then; 5] = [Then::Close, Then::Stall, Then::Reset, Then::Tear(1), Then::Tear(30)];

/// Wherever in the request the answer is lost, and however.
#[tokio::test(flavor = "multi_thread")]
async fn every_member_of_a_call_without_an_answer_is_told_what_the_first_execution_did() {
    let scene = Scene::start().await;
    let mut losses = 0;
    for (round, then) in WAYS.into_iter().enumerate() {
        for lost in ["fresh", "absent", "cancelled", "moved"] {
            let caller = scene.quick_caller().await;
            let named = |id: &str| format!("{id}-{round}-{lost}");
            for id in ["replaced", "there", "cancelled", "moved"] {
                assert!(scene.direct.armed_with(named(id), LATER, "old").await.unwrap().is_armed());
            }
            let held = scene.hold(&caller).await;
            scene.lose(&named(lost), then);
            let answers = held
                .release([
                    caller.arm(named("fresh")),
                    caller.arm(named("replaced")),
                    caller.arm_absent(named("absent")),
                    caller.arm_absent(named("there")),
                    caller.cancel(named("cancelled")),
                    caller.cancel(named("nobody")),
                    caller.reschedule(named("moved")),
                    caller.reschedule(named("nobody-else")),
                ])
                .await;
            let expected =
                ["Armed", "Replaced", "Armed", "Exists", "Cancelled", "NotArmed", "Rescheduled", "NotArmed"];
            assert_eq!(answers, expected, "{then:?} at the answer to {lost}");
            losses += 1;
            assert_eq!(scene.proxy.lost(), losses);
            let payload = async |id| scene.standing(&named(id)).await.map(|timer| timer.payload);
            assert_eq!(payload("replaced").await.as_deref(), Some(""));
            assert_eq!(payload("there").await.as_deref(), Some("old"));
            assert_eq!(payload("cancelled").await, None);
            assert_eq!(payload("fresh").await.as_deref(), Some(""));
        }
    }
}

/// Many calls, many losses: each timer stands once, with the arming that its caller was told.
#[tokio::test(flavor = "multi_thread")]
async fn callers_are_told_the_truth_though_every_other_answer_is_lost() {
    let scene = Scene::start().await;
    let caller = scene.caller_of(scene.client().answer_within(Duration::from_millis(300)).unwrap()).await;
    let mut n = 0;
    let evalsha = command("EVALSHA");
    let every_other = move |words: &[bytes::Bytes]| {
        n += usize::from(evalsha(words));
        evalsha(words) && n % 2 == 0
    };
    let every_other = std::sync::Mutex::new(every_other);
    scene.proxy.lose_replies(10, move |words| (every_other.lock().unwrap())(words), Then::Close);
    let tasks = (0..16).map(|task| {
        let caller = caller.clone();
        tokio::spawn(async move {
            for n in 0..10 {
                let id = format!("{task}-{n}");
                assert_eq!(caller.arm(&id).await, "Armed");
                assert_eq!(caller.arm_absent(&id).await, "Exists");
                assert_eq!(caller.cancel(&id).await, "Cancelled");
                assert_eq!(caller.cancel(&id).await, "NotArmed");
                let armed = caller.armed_with(&id, LATER, "").await.expect("an answer");
                assert!(matches!(armed, keylapse::ArmResult::Armed(_)), "{armed:?}");
            }
        })
    });
    for task in futures::future::join_all(tasks).await {
        task.expect("the truth");
    }
    // Some go down with the connection of another.
    assert!((3..=10).contains(&scene.proxy.lost()), "{}", scene.proxy.lost());
    for (task, n) in (0..16).flat_map(|task| (0..10).map(move |n| (task, n))) {
        scene.all_stand(&[&format!("{task}-{n}")]).await;
    }
}
