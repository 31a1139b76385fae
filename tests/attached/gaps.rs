//! What cannot be heard is found by the scan that follows each gap; no other comes to help.

use std::time::Duration;

use keylapse_support::eventually;

use crate::scene::{ALL_FLAGS, Notes, PATIENCE, Stage, now, order, orders_with_values};

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: u64 = 60_000;

async fn hearing() -> Stage {
    Stage::with(ALL_FLAGS, orders_with_values().scan_every(HOUR), Notes::handler).await
}

impl Stage {
    async fn flags(&self, flags: &str) {
        self.cmd(&["CONFIG", "SET", "notify-keyspace-events", flags]).await;
    }
}

#[tokio::test]
async fn a_key_that_is_written_while_nothing_is_announced_is_found_by_a_scan() {
    let stage = hearing().await;
    let gaps = stage.listener.stats.listener().gaps;
    stage.flags("").await;
    let deadline = stage.write("1", "a sofa", MINUTE).await;
    let noticed = async || stage.listener.stats.listener().gaps > gaps;
    eventually(PATIENCE, "the silence to be noticed", noticed).await;
    stage.flags(ALL_FLAGS).await;
    stage.until_watched("1", deadline).await;
    stage.listener.stop().await;
}

#[tokio::test]
async fn a_key_that_is_written_while_nobody_listens_is_found_by_a_scan() {
    let stage = hearing().await;
    let deadline = now() + MINUTE;
    let mut line = stage.server.conn().await;
    // In one step: nobody can have subscribed again before the key is written.
    let mut steps = redis::pipe();
    steps.atomic().cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub");
    steps.cmd("SET").arg(order("1")).arg("a sofa").arg("PXAT").arg(deadline);
    let (killed, ()): (u64, ()) = steps.query_async(&mut line).await.unwrap();
    assert!(killed > 0);
    stage.until_watched("1", deadline).await;
    stage.listener.stop().await;
}

/// Whoever is told that it was too late for a note has missed more than that.
#[tokio::test]
async fn an_expiry_that_is_noted_too_late_opens_a_gap() {
    let stage = hearing().await;
    let scans = stage.listener.attached().scans;
    // As others leave the memory when they are minutes ahead; it is caught up with in a while.
    let floor = (now() + 4000).to_string();
    stage.cmd(&["HSET", "keylapse:{orders/0}:meta", "turned", &floor, "floor", &floor]).await;
    stage.write("1", "a sofa", 300).await;
    eventually(PATIENCE, "the note to be refused", async || stage.listener.attached().stale > 0).await;
    eventually(PATIENCE, "another scan", async || stage.listener.attached().scans > scans).await;
    stage.listener.stop().await;
}
