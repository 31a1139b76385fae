//! A timer's life on a real server: armed, run, retried, buried, cancelled.

use std::time::Duration;

use keylapse::{ArmResult, Backoff, Done, Failure, Lapse, Outcome, Topic};

use crate::server::support::{Running, listener, reporting, server_and_schedule};

#[tokio::test(flavor = "multi_thread")]
async fn an_armed_timer_runs_once_with_its_payload_and_is_gone() {
    let (server, schedule) = server_and_schedule().await;
    let topic = Topic::<String>::new("app:order:{id}").unwrap();
    let (handler, mut reported) = reporting(|lapse: Lapse<String>| {
        assert!(lapse.deadline() <= std::time::SystemTime::now());
        ((lapse.capture("id").map(str::to_owned), lapse.payload().clone(), lapse.attempt()), Ok(Done))
    });
    let running = Running::start(listener(&server).on(topic.clone(), handler));
    let armed = schedule.arm(&topic, ["42"], Duration::from_millis(50), &"hello".to_owned()).await.unwrap();
    assert!(matches!(armed, ArmResult::Armed(_)), "{armed:?}");
    assert_eq!(reported.next().await, (Some("42".into()), "hello".into(), 1));
    running.stop().await.unwrap();
    assert!(schedule.look_up(&topic, ["42"]).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_retried_with_the_next_attempt_and_end_as_a_dead_letter() {
    let (server, schedule) = server_and_schedule().await;
    let topic = Topic::<u32>::new("app:notice:{id}")
        .unwrap()
        .retry(Backoff::table([Duration::from_millis(20), Duration::from_millis(40)]));
    let (handler, mut reported) = reporting(|lapse: Lapse<u32>| {
        let seen = (lapse.attempt(), lapse.history().len(), lapse.is_last_attempt());
        (seen, Err::<Done, _>(Failure::retry("the merchant does not answer")))
    });
    let running = Running::start(listener(&server).on(topic.clone(), handler));
    let _ = schedule.arm(&topic, ["7"], Duration::ZERO, &5).await.unwrap();
    assert_eq!(reported.next().await, (1, 0, false));
    assert_eq!(reported.next().await, (2, 1, false));
    assert_eq!(reported.next().await, (3, 2, true));
    running.stop().await.unwrap();
    let letters = schedule.dead_letters(&topic).page(10).await.unwrap();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].attempts, 3);
    assert_eq!(letters[0].last_error(), Some("the merchant does not answer"));
    assert_eq!(*letters[0].payload.as_ref().unwrap(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn again_arms_the_next_occurrence_and_cancel_ends_it() {
    let (server, schedule) = server_and_schedule().await;
    let topic = Topic::<()>::new("app:beat:{id}").unwrap();
    let (handler, mut reported) =
        reporting(|lapse: Lapse<()>| (lapse.arming(), Ok(Outcome::Again(Duration::from_millis(10)))));
    let running = Running::start(listener(&server).on(topic.clone(), handler));
    let _ = schedule.arm(&topic, ["x"], Duration::ZERO, &()).await.unwrap();
    let first = reported.next().await;
    assert_ne!(first, reported.next().await);
    let _ = schedule.cancel(&topic, ["x"]).await.unwrap();
    running.stop().await.unwrap();
    assert!(schedule.look_up(&topic, ["x"]).await.unwrap().is_none());
}
