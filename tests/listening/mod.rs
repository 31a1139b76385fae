//! A listener's roles together, on a store whose calls can fail.

mod bounds;
mod claiming;
mod crowd;
mod earlier_names;
mod ids;
mod keeping;
mod line;
pub(crate) mod log;
mod owning;
mod priorities;
mod quarantine;
mod repairing;
mod reporting;
mod settling;
mod starting;
mod undecodable;

use std::time::Duration;

use bytes::Bytes;

use keylapse::Backoff;
use keylapse::Cancelled;
use keylapse::Lapse;
use keylapse::Topic;
use keylapse::handler::Handler;
use keylapse::stats::TopicStats;
use keylapse::{Done, Failure};
use keylapse_testing::{RedisReply, RunningListener, TestBed};
use keylapse_wire::RepairTarget;
use keylapse_wire::names::{DEFAULT_NAMESPACE, PartitionNames};

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

async fn listen(bed: &TestBed, topic: Topic<u32>, handler: impl Handler<u32>) -> RunningListener {
    bed.listen(|listener| listener.on(topic, handler)).await.expect("it can listen")
}

/// A bed on which a listener serves this topic.
async fn bed_with(topic: Topic<u32>, handler: impl Handler<u32>) -> (TestBed, RunningListener) {
    let bed = TestBed::counting();
    let listening = listen(&bed, topic, handler).await;
    (bed, listening)
}

/// The same, and timer `1` is armed, which is due in a second.
async fn one_timer(
    topic: Topic<u32>,
    handler: impl Handler<u32>,
    payload: u32,
) -> (TestBed, RunningListener) {
    let (bed, listening) = bed_with(topic, handler).await;
    arm(&bed, "1", secs(1), payload).await;
    (bed, listening)
}

async fn arm(bed: &TestBed, id: &str, delay: Duration, payload: u32) {
    arm_on(bed, &topic(), id, delay, payload).await;
}

/// Timers that are due in a second.
async fn arm_all(bed: &TestBed, ids: &[&str], payload: u32) {
    for id in ids {
        arm(bed, id, secs(1), payload).await;
    }
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

fn stats(listening: &RunningListener) -> TopicStats {
    listening.stats().total()
}

/// Overwrites what one of the hashes holds for a key, or deletes it.
fn put_raw(bed: &TestBed, hash: RepairTarget, key: &[u8], value: Option<Bytes>) {
    let names = PartitionNames::new(DEFAULT_NAMESPACE, "a", 0, 1, false);
    let name = names.key(hash.as_str()).as_bytes();
    match value {
        Some(value) => bed.command([b"HSET", name, key, &value]),
        None => bed.command([b"HDEL", name, key]),
    };
}

/// What stands in a trigger key.
fn trigger(bed: &TestBed, key: &str) -> Option<Bytes> {
    match bed.command(["GET", key]) {
        RedisReply::Bulk(value) => Some(value),
        _ => None,
    }
}
