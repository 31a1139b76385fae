//! Lives of timers and listeners, from end to end.

use std::sync::Arc;
use std::time::Duration;

use keylapse::dead_letters::DeadReason;
use keylapse::handler::Handler;
use keylapse::{Backoff, Cancelled, Done, ErrorKind, Failure, Lapse, Outcome};
use keylapse_console::Console;
use keylapse_testing::{RunEnd, TestBed};
use tokio::sync::Semaphore;

use crate::kit::support::{arm, bed, bed_with_one, fail, listen, ms, reminders, secs, succeed};

const DAY: Duration = secs(86_400);

#[tokio::test(start_paused = true)]
async fn time_passes_to_the_millisecond() {
    let bed = bed().await;
    let began = bed.now();
    arm(&bed, "a", secs(30)).await;
    bed.advance(secs(30) - ms(1)).await;
    assert_eq!(bed.all_runs(), []);
    bed.advance(ms(1)).await;
    let runs = bed.all_runs();
    assert_eq!((runs[0].began, runs[0].ended), (secs(30), Some(secs(30))));
    assert_eq!(bed.now(), began + secs(30));
    assert!(bed.schedule().look_up(&reminders(), ["a"]).await.unwrap().is_none(), "it is settled");
}

#[tokio::test(start_paused = true)]
async fn a_retry_is_due_to_the_millisecond() {
    let bed = bed_with_one(fail, secs(5)).await;
    bed.advance(secs(5)).await;
    bed.advance(secs(10)).await;
    bed.advance(secs(10)).await;
    let began: Vec<_> = bed.all_runs().iter().map(|run| (run.attempt, run.began)).collect();
    assert_eq!(began, [(1, secs(5)), (2, secs(15)), (3, secs(25))]);
    let letters = bed.schedule().dead_letters(&reminders()).page(10).await.unwrap();
    assert_eq!((letters[0].reason, letters[0].last_error()), (DeadReason::Exhausted, Some("no 3")));
}

#[tokio::test(start_paused = true)]
async fn more_than_a_day_of_retries_takes_a_moment() {
    let bed = TestBed::new();
    let notices = reminders().retry(Backoff::payment_notice()).max_attempts(16);
    bed.listen(|listener| listener.on(notices.clone(), fail)).await.unwrap();
    arm(&bed, "a", secs(0)).await;
    bed.until_finished().await;
    assert_eq!(bed.runs(&notices).len(), 16);
    assert!(bed.elapsed() > DAY);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_timer_does_not_run() {
    let bed = bed_with_one(succeed, secs(30)).await;
    bed.advance(secs(29)).await;
    let cancelled = bed.schedule().cancel(&reminders(), ["a"]).await;
    assert_eq!(cancelled.unwrap(), Cancelled::Cancelled);
    bed.advance(DAY).await;
    assert_eq!(bed.all_runs(), []);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_slow_is_stopped_by_its_timeout() {
    let bed = TestBed::new();
    let slow = async |_: Lapse<String>| -> Result<Done, Failure> { std::future::pending().await };
    let topic = reminders().timeout(secs(20));
    bed.listen(|listener| listener.on(topic, slow)).await.unwrap();
    arm(&bed, "a", secs(0)).await;
    bed.advance(secs(19)).await;
    assert_eq!(bed.all_runs()[0].end, None);
    bed.advance(secs(1)).await;
    assert_eq!(bed.all_runs()[0].end, Some(RunEnd::Stopped));
}

/// A handler that says when it is inside, and stays there.
fn stuck() -> (Arc<Semaphore>, impl Handler<String>) {
    let inside = Arc::new(Semaphore::new(0));
    let sign = inside.clone();
    let handler = move |_| {
        sign.add_permits(1);
        std::future::pending::<Result<Done, Failure>>()
    };
    (inside, handler)
}

#[tokio::test(start_paused = true)]
async fn what_a_crashed_listener_held_runs_elsewhere_under_the_same_id() {
    let bed = TestBed::new();
    let (inside, handler) = stuck();
    let first = listen(&bed, handler).await;
    arm(&bed, "a", secs(1)).await;
    inside.acquire().await.unwrap().forget();
    listen(&bed, succeed).await;
    first.crash().await;
    bed.until_finished().await;

    let runs = bed.all_runs();
    let ends: Vec<_> = runs.iter().map(|run| run.end.clone()).collect();
    assert_eq!(ends, [Some(RunEnd::Crashed), Some(RunEnd::Returned(Outcome::Done))]);
    assert_eq!(runs[0].id, runs[1].id);
    assert!(runs[1].redelivered && runs[1].began < secs(1 + 30 + 2), "{runs:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_deployment_uses_up_no_attempt() {
    let bed = TestBed::new();
    let (inside, handler) = stuck();
    let first = bed.listen(|listener| listener.on(reminders(), handler).grace(secs(3))).await.unwrap();
    arm(&bed, "a", secs(1)).await;
    inside.acquire().await.unwrap().forget();
    listen(&bed, succeed).await;
    first.stop().await.unwrap();
    let run = bed.until_ran(&reminders(), ["a"]).await;
    assert!(run.is_done() && run.attempt == 1, "{run:?}");
    assert_eq!(run.began, secs(1 + 3));
}

#[tokio::test(start_paused = true)]
async fn two_listeners_share_the_work() {
    let bed = bed().await;
    listen(&bed, succeed).await;
    for id in 0..100 {
        arm(&bed, &id.to_string(), secs(id % 10)).await;
    }
    bed.advance(secs(11)).await;
    assert_eq!(bed.all_runs().len(), 100);
    assert!(bed.all_runs().iter().all(|run| run.lateness < secs(1)));
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_is_destroyed_forgets_its_timers_and_its_listener_goes_on() {
    let bed = bed_with_one(succeed, secs(30)).await;
    bed.advance(secs(1)).await;
    let console = Console::new(bed.client());
    let refused = console.destroy(&reminders()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InUse);
    assert!(refused.to_string().contains("topic reminder is served by listener "), "{refused}");
    let destroyed = console.destroy(&reminders()).forced().await.unwrap();
    assert_eq!((destroyed.timers, destroyed.marker_keys), (1, 1));
    bed.advance(DAY).await;
    assert_eq!(bed.all_runs(), []);
    arm(&bed, "b", secs(10)).await;
    bed.advance(secs(10)).await;
    assert_eq!(bed.all_runs()[0].began, DAY + secs(11));
}
