//! Each caller's patience is its own.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt;
use keylapse::{ErrorKind, NewArm, Topic};
use keylapse_support::{Direction, Then, command, eventually};

use super::scene::{Caller, LATER, Scene};
use crate::server::support::PATIENCE;

const SECOND: Duration = Duration::from_secs(1);

/// How long an arm took to fail, and how it did.
async fn failing(caller: Caller, id: &'static str) -> (Duration, keylapse::Error) {
    let started = Instant::now();
    let error = caller.armed_with(id, LATER, "").await.expect_err("there is no answer");
    (started.elapsed(), error)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_was_not_sent_in_time_is_told_so_and_never_sent() {
    let scene = Scene::start().await;
    let caller = scene.caller_of(scene.client().retry_for(SECOND).answer_within(2 * SECOND).unwrap()).await;
    let held = scene.hold(&caller).await;
    let single = tokio::spawn(failing(caller.clone(), "1"));
    let many = [NewArm::new(["2"], LATER, String::new()), NewArm::new(["3"], LATER, String::new())];
    let many = caller.schedule.arm_many(&caller.topic, many).await.expect("answers");
    let many = many.into_iter().map(|answer| answer.expect_err("there is no answer"));
    for error in many.chain([single.await.unwrap().1]) {
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        assert!(error.to_string().contains("was not sent"), "{error}");
    }
    held.abandon().await;
    assert_eq!(caller.arm("next").await, "Armed");
    let seen: Vec<_> = scene.take_seen().into_iter().map(|seen| seen.ids).collect();
    assert_eq!(seen, [["next"]]);
    scene.none_stands(&["1", "2", "3"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_were_sent_together_without_an_answer_each_end_with_their_own_patience() {
    let scene = Scene::start().await;
    let hasty = scene.client().answer_within(Duration::from_millis(100)).unwrap().retry_for(2 * SECOND);
    let caller = scene.caller_of(hasty).await;
    scene.proxy.lose_replies(usize::MAX, command("EVALSHA"), Then::Stall);
    let calls: Vec<_> = ["1", "2", "3"].map(|id| tokio::spawn(failing(caller.clone(), id))).into();
    scene.until_seen("3").await;
    let started = Instant::now();
    eventually(PATIENCE, "half a second", async || started.elapsed() > SECOND / 2).await;
    let later = tokio::spawn(failing(caller.clone(), "4"));
    for call in calls.into_iter().chain([later]) {
        let (elapsed, error) = call.await.unwrap();
        // The last try may have been given up a whole wait before the end.
        assert!((SECOND / 2..10 * SECOND).contains(&elapsed), "{elapsed:?}: {error}");
        assert!([ErrorKind::Unknown, ErrorKind::Timeout].contains(&error.kind()), "{error}");
        assert_eq!(error.kind() == ErrorKind::Timeout, error.to_string().contains("was not sent"), "{error}");
        assert_eq!(error.kind() == ErrorKind::Unknown, error.arming().is_some(), "{error}");
    }
}

/// One that is taken between its poll and its end is on its way by then, and goes by itself.
#[tokio::test]
async fn a_thousand_calls_dropped_on_a_silent_line_are_not_sent_when_it_is_back() {
    let scene = Scene::start().await;
    let caller = scene.caller().await;
    let held = scene.hold(&caller).await;
    scene.proxy.stall(Direction::Requests);
    for n in 0..2_500 {
        let mut call = caller.arm(format!("dropped-{n}"));
        assert_eq!((&mut call).now_or_never(), None);
    }
    assert_eq!(held.release([caller.arm("kept")]).await, ["Armed"]);
    let seen: Vec<_> = scene.take_seen().into_iter().map(|seen| seen.ids).collect();
    assert!(seen.iter().all(|ids| ids.len() == 1) && seen.len() < 250, "{seen:?}");
    assert_eq!(seen.last().unwrap(), &["kept"]);
}

#[tokio::test]
async fn payloads_of_dropped_calls_do_not_stay_in_memory_while_the_line_is_silent() {
    /// A payload that tells how many of it are left.
    struct Counted {
        _count: Arc<()>,
    }
    impl AsRef<[u8]> for Counted {
        fn as_ref(&self) -> &[u8] {
            b"payload"
        }
    }
    let scene = Scene::start().await;
    let caller = scene.caller().await;
    let held = scene.hold(&caller).await;
    let topic = Topic::raw_named("app.share", "app:share:{id}").unwrap();
    let (count, mut most) = (Arc::new(()), 0);
    for n in 0..10_000 {
        let payload = Bytes::from_owner(Counted { _count: count.clone() });
        let arm = caller.schedule.arm(&topic, [format!("dropped-{n}")], LATER, &payload).into_future();
        drop(payload);
        assert!(arm.now_or_never().is_none());
        most = most.max(Arc::strong_count(&count) - 1);
    }
    assert!(most > 1, "it does count them");
    assert!(most <= 2_500, "{most} payloads of 10,000 were kept");
    held.release::<()>([]).await;
}

/// The answers to those before them come after ten times their patience.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_not_sent_hears_of_it_when_its_own_patience_ends() {
    let scene = Scene::start().await;
    let slow = scene.client().retry_for(SECOND).answer_within(10 * SECOND).unwrap();
    let caller = scene.caller_of(slow).await;
    let held = scene.hold(&caller).await;
    let first = tokio::spawn(failing(caller.clone(), "1"));
    let started = Instant::now();
    eventually(PATIENCE, "half its patience", async || started.elapsed() > SECOND / 2).await;
    let second = tokio::spawn(failing(caller.clone(), "2"));
    for call in [first, second] {
        let (elapsed, error) = call.await.unwrap();
        assert!((SECOND..8 * SECOND).contains(&elapsed), "{elapsed:?}: {error}");
        assert!(error.to_string().contains("was not sent"), "{error}");
    }
    held.abandon().await;
}
