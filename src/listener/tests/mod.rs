//! A listener's roles together, on a store whose calls can fail.

mod bounds;
mod claiming;
mod keeping;
mod repairing;
mod settling;
mod starting;
mod suspects;

use std::time::Duration;

use crate::testing::{Listening, TestBed};
use crate::{Backoff, Cancelled, Done, Failure, Handler, Lapse, Topic, TopicStats};

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Retried after ten seconds, three attempts in all; with a lease of 30 s.
fn topic() -> Topic<u32> {
    Topic::new("a:{id}").expect("the pattern is fine").retry(Backoff::fixed(secs(10))).max_attempts(3)
}

async fn succeed(_: Lapse<u32>) -> Result<Done, Failure> {
    Ok(Done)
}

async fn fail(_: Lapse<u32>) -> Result<Done, Failure> {
    Err(Failure::retry("no"))
}

/// Takes so many seconds as the payload says.
async fn take_time(lapse: Lapse<u32>) -> Result<Done, Failure> {
    tokio::time::sleep(secs(u64::from(*lapse.payload()))).await;
    Ok(Done)
}

async fn stuck(_: Lapse<u32>) -> Result<Done, Failure> {
    std::future::pending().await
}

async fn listen(bed: &TestBed, topic: Topic<u32>, handler: impl Handler<u32>) -> Listening {
    bed.listen(|listener| listener.on(topic, handler)).await.expect("it can listen")
}

async fn arm(bed: &TestBed, id: &str, delay: Duration, payload: u32) {
    arm_on(bed, &topic(), id, delay, payload).await;
}

async fn arm_on(bed: &TestBed, topic: &Topic<u32>, id: &str, delay: Duration, payload: u32) {
    let armed = bed.schedule().arm(topic, [id], delay, &payload).await;
    assert!(armed.expect("it can be armed").is_armed());
}

/// How a cancel found a timer that is there.
async fn cancel(bed: &TestBed, id: &str) -> Cancelled {
    let cancelled = bed.schedule().cancel(&topic(), [id]).await.expect("it can be cancelled");
    assert_ne!(cancelled, Cancelled::NotArmed);
    cancelled
}

fn stats(listening: &Listening) -> TopicStats {
    listening.stats().total()
}
