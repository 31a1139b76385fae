//! Whether a handler is told the key's own deadline.

use std::time::Duration;

use keylapse_support::eventually;
use redis::Value;

use crate::scene::{
    ALL_FLAGS, Harness, Notes, PATIENCE, enrolled as watches, now, order, orders_with_values, server,
};

/// A deadline that is none, in ms.
const FAR: u64 = 1 << 53;

/// Where only expiries are heard, and keys are found by the first scan alone; one key that lives for a minute.
async fn enrolled() -> Harness {
    let server = server("Ex").await;
    let deadline = now() + 60_000;
    server.cmd(&["SET", &order("1"), "a sofa", "PXAT", &deadline.to_string()]).await;
    let topic = orders_with_values().scan_every(Duration::from_secs(3600));
    let harness = Harness::on(server, topic, Notes::handler).await;
    harness.until_watched("1", deadline).await;
    harness
}

/// In ms, and longer than a server waits for a processor. Redis 7.0 announces `del` if the deadline passes while `PEXPIRE`
/// runs. Valkey does not write a key whose deadline has passed.
const SOON: &str = "250";

/// Waits until the key has expired, and has the server announce it.
async fn until_expired(harness: &Harness, id: &str) {
    let key = order(id);
    eventually(PATIENCE, "the key to expire", async || harness.cmd(&["EXISTS", &key]).await == Value::Int(0))
        .await;
}

/// It fires with the value that was read, and without the deadline.
async fn fires_at_an_unknown_deadline(harness: Harness, from: u64) {
    harness.notes.until(1).await;
    let run = harness.notes.runs()[0].clone();
    assert_eq!((run.text(), run.deadline_known), (Some("a sofa"), false), "{run:?}");
    assert!((from..=run.at).contains(&run.deadline), "it is when the end was noted: {run:?}");
    harness.listener.stop().await;
}

#[tokio::test]
async fn a_deadline_that_was_brought_forward_unheard_is_not_known() {
    let harness = enrolled().await;
    let from = now();
    harness.cmd(&["PEXPIRE", &order("1"), SOON]).await;
    until_expired(&harness, "1").await;
    fires_at_an_unknown_deadline(harness, from).await;
}

#[tokio::test]
async fn the_deadline_of_a_forged_expiry_is_not_known() {
    let harness = enrolled().await;
    let from = now();
    harness.cmd(&["PUBLISH", "__keyevent@0__:expired", &order("1")]).await;
    fires_at_an_unknown_deadline(harness, from).await;
}

#[tokio::test]
async fn the_deadline_of_a_key_that_was_never_read_is_not_known() {
    let harness = enrolled().await;
    let from = now();
    harness.cmd(&["SET", &order("2"), "a lamp", "PX", SOON]).await;
    until_expired(&harness, "2").await;
    harness.notes.until(1).await;
    let run = harness.notes.runs()[0].clone();
    assert_eq!((run.text(), run.deadline_known), (None, false), "{run:?}");
    assert!((from..=run.at).contains(&run.deadline), "{run:?}");
    harness.listener.stop().await;
}

/// As programs write it that mean "for ever". Beyond 2^53 ms a script reads another number than a command.
#[tokio::test]
async fn a_deadline_that_is_too_far_to_be_read_exactly_is_none() {
    for flags in [ALL_FLAGS, "Ex"] {
        let harness = Harness::hearing(flags).await;
        for (id, deadline) in
            [("1", FAR), ("2", FAR + 1), ("3", 1 << 56), ("4", (1 << 60) + 7), ("5", i64::MAX as u64)]
        {
            harness.write_until(id, "a sofa", deadline).await;
        }
        harness.write_until("0", "a sofa", FAR - 1).await;
        harness.until_watched("0", FAR - 1).await;
        let scans = harness.listener.attached().scans;
        eventually(PATIENCE, "two more scans", async || harness.listener.attached().scans >= scans + 2).await;
        harness.pass(now()).await;
        assert_eq!(watches(&harness.server).await, 1, "{flags}");
        harness.listener.stop().await;
    }
}

/// Else what was enrolled of it would go on.
#[tokio::test]
async fn a_deadline_that_is_put_off_to_the_end_of_time_is_forgotten() {
    let harness = Harness::hearing(ALL_FLAGS).await;
    for far in [FAR, i64::MAX as u64] {
        harness.enrol("1", "a sofa", 60_000).await;
        harness.write_until("1", "a sofa", far).await;
        harness.is_forgotten("1").await;
    }
    harness.listener.stop().await;
}
