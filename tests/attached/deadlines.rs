//! Whether a handler is told the key's own deadline.

use std::time::Duration;

use crate::scene::{Harness, Notes, now, order, orders_with_values, server};

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
    harness.cmd(&["PEXPIRE", &order("1"), "1"]).await;
    tokio::time::sleep(Duration::from_millis(5)).await; // for so long it lives
    harness.cmd(&["EXISTS", &order("1")]).await;
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
    harness.write("2", "a lamp", 1).await;
    tokio::time::sleep(Duration::from_millis(5)).await; // for so long it lives
    harness.cmd(&["EXISTS", &order("2")]).await;
    harness.notes.until(1).await;
    let run = harness.notes.runs()[0].clone();
    assert_eq!((run.text(), run.deadline_known), (None, false), "{run:?}");
    assert!((from..=run.at).contains(&run.deadline), "{run:?}");
    harness.listener.stop().await;
}
