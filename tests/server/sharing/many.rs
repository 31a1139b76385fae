//! Calls that come together, and the bounds of what goes together.

use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use keylapse::ArmResult;
use keylapse::limits::MAX_PAYLOAD;
use keylapse::timers::TimerPhase;
use keylapse_support::{Direction, eventually, skipped_on_a_cluster};

use super::scene::{LATER, Scene};
use crate::server::support::PATIENCE;

const MIB: usize = 1 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn arms_joined_in_one_task_share_few_calls_and_each_has_its_own_answer() {
    let scene = Scene::start().await;
    let caller = scene.caller().await;
    for n in (0..200).step_by(10) {
        assert_eq!(scene.direct.arm(n.to_string()).await, "Armed");
    }
    let delay = |n: u64| LATER + Duration::from_secs(n);
    let arms = (0..200).map(|n| caller.armed_with(n.to_string(), delay(n), &format!("for {n}")));
    let before = scene.now().await;
    let answers = join_all(arms).await;
    let seen = scene.take_seen();
    // Mostly it is two or three. While a busy machine keeps the task from running, a call takes what there is.
    assert!(seen.len() <= 50, "{} calls", seen.len());
    assert_eq!(seen.iter().map(|seen| seen.ids.len()).sum::<usize>(), 200, "each is in one of them");
    for (n, answer) in (0..).zip(answers) {
        let answer = answer.unwrap();
        assert_eq!(matches!(answer, ArmResult::Replaced(_)), n % 10 == 0, "{n}: {answer:?}");
        let receipt = answer.receipt().unwrap();
        let timer = scene.standing(&n.to_string()).await.unwrap();
        assert_eq!((timer.arming, timer.phase), (receipt.id, TimerPhase::Waiting(receipt.deadline)));
        assert_eq!(timer.payload, format!("for {n}"));
        let after = receipt.deadline.duration_since(before).unwrap();
        assert!((delay(n)..delay(n) + PATIENCE).contains(&after), "{n}: {after:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_many_tasks_share_few_calls_and_each_has_its_own_answer() {
    let scene = Scene::start().await;
    let caller = scene.caller().await;
    scene.proxy.delay(Direction::Replies, Duration::from_millis(5));
    let tasks = (0..32).map(|n: usize| {
        let caller = caller.clone();
        tokio::spawn(async move {
            for _ in 0..4 {
                let id = n.to_string();
                assert_eq!(caller.arm(&id).await, "Armed");
                assert_eq!(caller.arm_absent(&id).await, "Exists");
                assert_eq!(caller.reschedule(&id).await, "Rescheduled");
                assert_eq!(caller.cancel(&id).await, "Cancelled");
                assert_eq!(caller.cancel(&id).await, "NotArmed");
            }
        })
    });
    for task in join_all(tasks).await {
        task.expect("the right answers");
    }
    let (seen, calls) = (scene.take_seen(), 32 * 4 * 5);
    assert_eq!(seen.iter().map(|seen| seen.ids.len()).sum::<usize>(), calls);
    assert!(seen.len() < calls / 4, "{} script calls for {calls}", seen.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_gathers_goes_in_a_call_for_each_kind_and_two_that_take_turns() {
    if skipped_on_a_cluster("a trigger key has a call of its own, as it is in another slot") {
        return;
    }
    let scene = Scene::start().await;
    let caller = scene.caller().await;
    let held = scene.hold(&caller).await;
    let calls = (0..10).flat_map(|n| {
        let [arm, absent, cancel, moved] = ["arm", "absent", "cancel", "moved"].map(|id| format!("{id}-{n}"));
        [caller.arm(arm), caller.arm_absent(absent), caller.cancel(cancel), caller.reschedule(moved)]
    });
    let answers = held.release(calls).await;
    assert!(answers.chunks(4).all(|four| *four == ["Armed", "Armed", "NotArmed", "NotArmed"]), "{answers:?}");
    let seen = scene.take_seen();
    for kind in [("arm", "r01"), ("arm", "a01"), ("cancel", "1"), ("reschedule", "1")] {
        let counts: Vec<_> =
            seen.iter().filter(|seen| (seen.script, &*seen.how) == kind).map(|seen| seen.ids.len()).collect();
        assert_eq!(counts.iter().sum::<usize>(), 10, "{kind:?}");
        assert!(counts.len() <= 3, "{kind:?} in {counts:?}");
    }
    assert!(seen.len() <= 12, "and nothing else: {} calls", seen.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn arms_that_replace_and_arms_only_if_absent_keep_their_ways_beside_each_other() {
    let scene = Scene::start().await;
    let caller = scene.caller().await;
    for n in 0..4 {
        assert!(scene.direct.armed_with(n.to_string(), LATER, "old").await.unwrap().is_armed());
    }
    let held = scene.hold(&caller).await;
    let calls = (0..6).map(|n| {
        let id = n.to_string();
        if n % 2 == 0 { caller.arm_absent(id) } else { caller.arm(id) }
    });
    assert_eq!(held.release(calls).await, ["Exists", "Replaced", "Exists", "Replaced", "Armed", "Armed"]);
    assert_eq!(scene.take_seen().len(), 2, "one call for either");
    for (n, payload) in ["old", "", "old", "", "absent", ""].into_iter().enumerate() {
        assert_eq!(scene.standing(&n.to_string()).await.unwrap().payload, payload, "{n}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delay_counts_from_when_the_call_runs_not_from_when_it_was_made() {
    let scene = Scene::start().await;
    let caller = scene.caller().await;
    let held = scene.hold(&caller).await;
    let made = scene.now().await;
    let mut calls: Vec<_> = (0..3).map(|n| caller.armed_with(n.to_string(), LATER, "")).collect();
    for call in &mut calls {
        assert!(call.now_or_never().is_none());
    }
    let half_a_second = Duration::from_millis(500);
    let passes = async || scene.now().await > made + half_a_second;
    eventually(PATIENCE, "half a second to pass", passes).await;
    assert!(!scene.has_seen("0"));
    let sent = scene.now().await;
    let answers = held.release(calls).await;
    let answered = scene.now().await;
    for answer in answers {
        let deadline = answer.unwrap().receipt().unwrap().deadline;
        let moment = Duration::from_millis(2);
        assert!(
            deadline + moment >= sent + LATER,
            "too early: {deadline:?}, made at {made:?}, sent at {sent:?}"
        );
        assert!(deadline <= answered + LATER + moment, "too late: {deadline:?}, answered at {answered:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_a_call_takes_goes_in_several_while_the_first_is_on_its_way() {
    let scene = Scene::start().await;
    let caller = scene.caller().await;
    let held = scene.hold(&caller).await;
    let arming: Vec<_> = (0..600).map(|n| tokio::spawn(caller.arm(n.to_string()))).collect();
    let full = async || scene.count_seen() > 0;
    eventually(PATIENCE, "a full call to go ahead of the answers", full).await;
    held.release::<()>([]).await;
    for armed in arming {
        assert_eq!(armed.await.unwrap(), "Armed");
    }
    let counts: Vec<_> = scene.take_seen().iter().map(|seen| seen.ids.len()).collect();
    assert!(counts.iter().all(|count| *count <= 250) && counts.len() <= 8, "{counts:?}");
    assert_eq!(counts.iter().sum::<usize>(), 600, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_payloads_share_calls_of_at_most_a_mebibyte() {
    let scene = Scene::start().await;
    let caller = scene.caller().await.with_large_payloads();
    let payload = "x".repeat(MIB / 8);
    let held = scene.hold(&caller).await;
    let answers = held.release((0..32).map(|n| caller.armed_with(n.to_string(), LATER, &payload))).await;
    assert!(answers.iter().all(|answer| matches!(answer, Ok(ArmResult::Armed(_)))), "{answers:?}");
    let seen = scene.take_seen();
    let sizes: Vec<_> = seen.iter().map(|seen| seen.bytes).collect();
    assert!(sizes.iter().all(|bytes| *bytes < MIB + MIB / 16), "{sizes:?}");
    assert!((4..=8).contains(&sizes.len()), "{sizes:?}: full calls");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_payload_goes_beside_small_ones() {
    let scene = Scene::start().await;
    let caller = scene.caller().await.with_large_payloads();
    let large = "x".repeat(MAX_PAYLOAD - 2);
    let held = scene.hold(&caller).await;
    let calls = [("1", "small"), ("2", "small"), ("large", &*large), ("3", "small"), ("4", "small")]
        .map(|(id, payload)| caller.armed_with(id, LATER, payload));
    let answers = held.release(calls).await;
    assert!(answers.iter().all(|answer| matches!(answer, Ok(ArmResult::Armed(_)))), "{answers:?}");
    assert_eq!(scene.standing("large").await.unwrap().payload.len(), large.len());
    scene.all_stand(&["1", "2", "3", "4"]).await;
    let ids: Vec<_> = scene.take_seen().into_iter().map(|seen| seen.ids).collect();
    assert_eq!(ids, [vec!["1", "2"], vec!["large"], vec!["3", "4"]]);
}
