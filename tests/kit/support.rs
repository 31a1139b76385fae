//! A topic and handlers for tests that are not about them.

use std::time::Duration;

use keylapse::handler::Handler;
use keylapse::stats::Stats;
use keylapse::{Backoff, Done, Failure, Lapse, Topic};
use keylapse_testing::{RunningListener, TestBed};

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Retried after ten seconds, three attempts in all.
pub(crate) fn reminders() -> Topic<String> {
    let topic = Topic::new("reminder:{id}").expect("the pattern is fine");
    topic.retry(Backoff::fixed(secs(10))).max_attempts(3)
}

pub(crate) async fn succeed(_lapse: Lapse<String>) -> Result<Done, Failure> {
    Ok(Done)
}

pub(crate) async fn fail(lapse: Lapse<String>) -> Result<Done, Failure> {
    Err(Failure::retry(format!("no {}", lapse.attempt())))
}

/// A bed with a listener whose handler succeeds.
pub(crate) async fn bed() -> TestBed {
    let bed = TestBed::new();
    listen(&bed, succeed).await;
    bed
}

pub(crate) async fn listen(bed: &TestBed, handler: impl Handler<String>) -> RunningListener {
    bed.listen(|listener| listener.on(reminders(), handler)).await.expect("it can listen")
}

/// A bed with a listener of this handler and one timer.
pub(crate) async fn bed_with_one(handler: impl Handler<String>, delay: Duration) -> TestBed {
    let bed = TestBed::new();
    listen(&bed, handler).await;
    arm(&bed, "a", delay).await;
    bed
}

pub(crate) async fn arm(bed: &TestBed, id: &str, delay: Duration) {
    let armed = bed.schedule().arm(&reminders(), [id], delay, &"hello".to_owned()).await;
    assert!(armed.expect("memory does not fail").is_armed());
}

/// Succeeds, but fails for `bad`.
pub(crate) async fn pick(lapse: Lapse<String>) -> Result<Done, Failure> {
    tokio::time::sleep(ms(30)).await;
    if lapse.capture("id") == Some("bad") { Err(Failure::retry("no")) } else { Ok(Done) }
}

/// A timer that runs, one that dies at its third attempt, and one that a sweep finds: seconds later.
pub(crate) async fn play(bed: &TestBed) -> Stats {
    let stats = listen(bed, pick).await.stats().clone();
    arm(bed, "good", secs(1)).await;
    arm(bed, "bad", secs(1)).await;
    bed.until_finished().await;
    bed.notifications().lose();
    arm(bed, "tardy", secs(1)).await;
    bed.until_finished().await;
    bed.notifications().heal();
    bed.notifications().disconnect();
    bed.advance(secs(5)).await;
    stats
}
