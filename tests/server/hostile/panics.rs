//! Panics in what the application gave us: they end an attempt, and never hold
//! a timer for ever.

use std::time::Duration;

use keylapse::dead_letters::DeadReason;
use keylapse::{Backoff, Done, Failure, Lapse, Topic};
use serde::{Deserialize, Serialize};

use super::scene::Tally;
use crate::server::support::{Running, listener, reporting, reports, server_and_schedule, until_dead};

const LEASE: Duration = Duration::from_millis(300);
const SECRET: &str = "hunter2";

/// A type of the application's own, which takes its decoder down.
#[derive(Debug, Serialize)]
struct Picky;

impl<'de> Deserialize<'de> for Picky {
    fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let text = String::deserialize(input)?;
        panic!("cannot bear {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_that_makes_its_decoder_panic_dies_undecodable() {
    let (server, schedule) = server_and_schedule().await;
    let topic =
        Topic::<Picky>::named("picky", "app:picky:{id}").unwrap().undecodable_retention(Duration::ZERO);
    let text = Topic::<String>::named("picky", "app:picky:{id}").unwrap();
    let running = Running::start(listener(&server).on(topic.clone(), Tally::default().handler()));
    let _ = schedule.arm(&text, ["1"], Duration::ZERO, &SECRET.to_owned()).await.unwrap();
    until_dead(&schedule, &text, 1).await;
    running.stop().await.unwrap();
    let letter = schedule.dead_letters(&text).page(1).await.unwrap().remove(0);
    assert_eq!(letter.reason, DeadReason::Undecodable);
    let expected = format!("the decoder of the payload panicked: cannot bear {SECRET}");
    assert_eq!(letter.last_error(), Some(&*expected), "beside the payload");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_policy_that_panics_is_a_failure_that_the_default_policy_retries() {
    let (server, schedule) = server_and_schedule().await;
    let topic = Topic::<u32>::new("app:policy:{id}").unwrap().retry(Backoff::custom(|_| panic!("no idea")));
    let topic = topic.lease(LEASE).max_attempts(2);
    let (handler, mut reported) = reporting(|lapse: Lapse<u32>| {
        ((lapse.attempt(), lapse.is_redelivered()), Err::<Done, _>(Failure::retry("no")))
    });
    let running = Running::start(listener(&server).on(topic.clone(), handler));
    let _ = schedule.arm(&topic, ["1"], Duration::ZERO, &1).await.unwrap();
    assert_eq!((reported.next().await, reported.next().await), ((1, false), (2, false)));
    until_dead(&schedule, &topic, 1).await;
    let letter = schedule.dead_letters(&topic).page(1).await.unwrap().remove(0);
    assert_eq!(letter.reason, DeadReason::Exhausted);
    let history: Vec<_> = letter.history.iter().map(|failed| (&*failed.kind, &*failed.error)).collect();
    assert_eq!(history, [("panic", "no; and the retry policy panicked: no idea"), ("error", "no")]);
    assert_eq!((running.stats.total().panics, running.stats.total().lost_leases), (1, 0));
    running.stop().await.unwrap();
}

/// Panics when it is dropped, as a guard does that finds its work undone.
struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        panic!("dropped before the end");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_panics_when_it_is_stopped_has_timed_out_like_any_other() {
    let (server, schedule) = server_and_schedule().await;
    let topic = Topic::<u32>::new("app:guard:{id}").unwrap().lease(LEASE).timeout(Duration::from_millis(20));
    let topic = topic.retry(Backoff::fixed(Duration::ZERO));
    let (report, mut reported) = reports();
    let running = Running::start(listener(&server).on(topic.clone(), move |lapse: Lapse<u32>| {
        report.send((lapse.attempt(), lapse.is_redelivered())).ok();
        async move {
            if lapse.attempt() == 1 {
                let _guard = Guard;
                std::future::pending::<()>().await;
            }
            Ok::<_, Failure>(Done)
        }
    }));
    let _ = schedule.arm(&topic, ["1"], Duration::ZERO, &1).await.unwrap();
    assert_eq!((reported.next().await, reported.next().await), ((1, false), (2, false)));
    running.until("the end", |stats| stats.total().handled == 1).await;
    assert_eq!((running.stats.total().timeouts, running.stats.total().lost_leases), (1, 0));
    running.stop().await.unwrap();
}
