//! Changes that are heard are understood each by itself: no scan comes to help, nor is any deadline near.

use std::time::Duration;

use keylapse::health::EventMode;
use keylapse_support::connect;

use crate::scene::{ALL_FLAGS, Harness, Notes, now, order, orders_with_values};

/// Far more than a test takes.
const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: u64 = 60_000;

/// A listener that has scanned, and will not again.
async fn hearing() -> Harness {
    let harness = Harness::with(ALL_FLAGS, orders_with_values().scan_every(HOUR), Notes::handler).await;
    harness.listener.until_mode(EventMode::Changes).await;
    harness
}

#[tokio::test]
async fn a_set_key_is_heard() {
    let harness = hearing().await;
    harness.enrol("1", "a sofa", MINUTE).await;
    harness.listener.stop().await;
}

#[tokio::test]
async fn a_key_with_an_earlier_deadline_is_heard() {
    let harness = hearing().await;
    let deadline = harness.enrol("1", "a sofa", MINUTE).await - MINUTE / 2;
    harness.cmd(&["PEXPIREAT", &order("1"), &deadline.to_string()]).await;
    harness.until_watched("1", deadline).await;
    harness.listener.stop().await;
}

#[tokio::test]
async fn a_key_that_is_persisted_deleted_or_moved_away_is_heard() {
    let harness = hearing().await;
    for (id, words) in [
        ("persisted", &["PERSIST", "KEY"][..]),
        ("deleted", &["DEL", "KEY"]),
        ("moved", &["MOVE", "KEY", "1"]),
    ] {
        let key = order(id);
        harness.enrol(id, "a sofa", MINUTE).await;
        harness
            .cmd(&words.iter().map(|word| if *word == "KEY" { &key } else { *word }).collect::<Vec<_>>())
            .await;
        harness.until_forgotten(id).await;
    }
    harness.listener.stop().await;
}

#[tokio::test]
async fn a_copied_key_is_heard() {
    let harness = hearing().await;
    let deadline = harness.enrol("1", "a sofa", MINUTE).await;
    harness.cmd(&["COPY", &order("1"), &order("2")]).await;
    harness.until_watched("2", deadline).await;
    harness.listener.stop().await;
}

#[tokio::test]
async fn a_renamed_key_is_heard_under_both_names() {
    let harness = hearing().await;
    let deadline = harness.enrol("1", "a sofa", MINUTE).await;
    harness.cmd(&["RENAME", &order("1"), &order("2")]).await;
    harness.until_watched("2", deadline).await;
    harness.until_forgotten("1").await;
    harness.listener.stop().await;
}

#[tokio::test]
async fn a_key_that_is_moved_here_is_heard() {
    let harness = hearing().await;
    let deadline = now() + MINUTE;
    let mut elsewhere = connect(&format!("{}1", harness.server.url())).await.unwrap();
    let mut set = redis::cmd("SET");
    set.arg(order("1")).arg("a sofa").arg("PXAT").arg(deadline);
    set.exec_async(&mut elsewhere).await.unwrap();
    redis::cmd("MOVE").arg(order("1")).arg(0).exec_async(&mut elsewhere).await.unwrap();
    harness.until_watched("1", deadline).await;
    harness.listener.stop().await;
}

#[tokio::test]
async fn a_restored_key_is_heard() {
    let harness = hearing().await;
    harness.restore("1", "a sofa", MINUTE).await;
    harness.listener.stop().await;
}
