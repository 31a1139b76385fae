//! A4: handlers that say too much, and handlers that never end.

use std::time::Duration;

use keylapse::dead_letters::{DeadLetter, DeadReason};
use keylapse::{Backoff, Done, Failure, Lapse, Schedule, Topic};
use keylapse_support::eventually;

use crate::scene::{PATIENCE, Running, arm, listener, server_and_schedule, topic};

const LEASE: Duration = Duration::from_secs(5);
/// What is kept of an error's text.
const KEPT: usize = 512;

/// What becomes of a timer whose last attempt fails, with another one beside it.
async fn letter_beside_another(schedule: &Schedule, topic: &Topic<u32>, id: &str) -> DeadLetter<u32> {
    arm(schedule, topic, id, Duration::ZERO).await;
    arm(schedule, topic, "other", Duration::ZERO).await;
    let dead = async || schedule.dead_letter_counts(topic).await.expect("counts").0 == 1;
    eventually(PATIENCE, "the last attempt to fail", dead).await;
    schedule.dead_letters(topic).page(1).await.expect("letters").remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a4_an_error_of_ten_megabytes_is_cut_and_others_proceed() {
    let (server, schedule) = server_and_schedule().await;
    let topic = topic(LEASE).max_attempts(2).retry(Backoff::fixed(Duration::from_millis(10)));
    let running = Running::start(listener(&server).on(topic.clone(), |lapse: Lapse<u32>| async move {
        match lapse.capture("id") {
            Some("wordy") => Err(Failure::retry("e".repeat(10 << 20))),
            _ => Ok(Done),
        }
    }));
    let letter = letter_beside_another(&schedule, &topic, "wordy").await;
    assert_eq!(letter.reason, DeadReason::Exhausted);
    let texts: Vec<_> = letter.history.iter().map(|failed| failed.error.len()).collect();
    assert!(texts.len() == 2 && texts.iter().all(|length| (1..=KEPT).contains(length)), "{texts:?}");
    assert_eq!(running.stop().await.handled, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a4_a_handler_that_never_returns_meets_its_timeout_and_others_proceed() {
    let (server, schedule) = server_and_schedule().await;
    let topic = topic(LEASE).max_attempts(2).retry(Backoff::fixed(Duration::from_millis(10)));
    let topic = topic.timeout(Duration::from_millis(200));
    let running = Running::start(listener(&server).on(topic.clone(), |lapse: Lapse<u32>| async move {
        if lapse.capture("id") == Some("endless") {
            std::future::pending::<()>().await;
        }
        Ok::<_, Failure>(Done)
    }));
    let letter = letter_beside_another(&schedule, &topic, "endless").await;
    let kinds: Vec<_> = letter.history.iter().map(|failed| failed.kind.as_str()).collect();
    assert_eq!((letter.reason, kinds), (DeadReason::Exhausted, vec!["timeout", "timeout"]));
    let stats = running.stop().await;
    assert_eq!((stats.handled, stats.timeouts), (1, 2));
}
