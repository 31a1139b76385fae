//! What cannot be heard is found by the scan that follows each gap; no other comes to help.

use std::time::Duration;

use keylapse_support::eventually;

use crate::scene::{ALL_FLAGS, Harness, Notes, PATIENCE, now, order, orders_with_values};

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: u64 = 60_000;

async fn hearing() -> Harness {
    Harness::with(ALL_FLAGS, orders_with_values().scan_every(HOUR), Notes::handler).await
}

impl Harness {
    async fn flags(&self, flags: &str) {
        self.cmd(&["CONFIG", "SET", "notify-keyspace-events", flags]).await;
    }
}

#[tokio::test]
async fn a_key_that_is_written_while_nothing_is_announced_is_found_by_a_scan() {
    let harness = hearing().await;
    let gaps = harness.listener.stats.listener().gaps;
    harness.flags("").await;
    let deadline = harness.write("1", "a sofa", MINUTE).await;
    let noticed = async || harness.listener.stats.listener().gaps > gaps;
    eventually(PATIENCE, "the silence to be noticed", noticed).await;
    harness.flags(ALL_FLAGS).await;
    harness.until_watched("1", deadline).await;
    harness.listener.stop().await;
}

#[tokio::test]
async fn a_key_that_is_written_while_nobody_listens_is_found_by_a_scan() {
    let harness = hearing().await;
    let deadline = now() + MINUTE;
    let mut line = harness.server.conn().await;
    // In one step: nobody can have subscribed again before the key is written.
    let mut steps = redis::pipe();
    steps.atomic().cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub");
    steps.cmd("SET").arg(order("1")).arg("a sofa").arg("PXAT").arg(deadline);
    let (killed, ()): (u64, ()) = steps.query_async(&mut line).await.unwrap();
    assert!(killed > 0);
    harness.until_watched("1", deadline).await;
    harness.listener.stop().await;
}

/// Whoever is told that it was too late for a note has missed more than that.
#[tokio::test]
async fn an_expiry_that_is_noted_too_late_opens_a_gap() {
    let harness = hearing().await;
    let scans = harness.listener.attached().scans;
    // As others leave the memory when they are minutes ahead; it is caught up with in a while.
    let floor = (now() + 4000).to_string();
    harness.cmd(&["HSET", "keylapse:{orders/0}:meta", "turned", &floor, "floor", &floor]).await;
    harness.write("1", "a sofa", 300).await;
    eventually(PATIENCE, "the note to be refused", async || harness.listener.attached().stale > 0).await;
    eventually(PATIENCE, "another scan", async || harness.listener.attached().scans > scans).await;
    harness.listener.stop().await;
}
