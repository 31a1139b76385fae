//! Who scans: it is handed over at once, and left to those who hear.

use std::time::Duration;

use keylapse_support::eventually;

use crate::scene::{ALL_FLAGS, Harness, Notes, PATIENCE, Running, now, orders_with_values, server};

const SCANNER: &str = "keylapse:{orders/0}:scanner";
/// How long scanning is a listener's, without its saying so again.
const HOLD: u64 = 6000;

#[tokio::test]
async fn a_listener_that_stops_leaves_the_scanning_to_whoever_comes() {
    let harness = Harness::hearing(ALL_FLAGS).await;
    let held = async || harness.server.cmd(&["HEXISTS", SCANNER, "slot"]).await == redis::Value::Int(1);
    assert!(held().await);
    let Harness { server, listener, .. } = harness;
    listener.stop().await;
    assert_eq!(server.cmd(&["HEXISTS", SCANNER, "slot"]).await, redis::Value::Int(0));
}

/// After the death of one that scans those who hear have as long again to take over.
#[tokio::test]
async fn a_listener_that_hears_nothing_leaves_the_scanning_to_others_first() {
    let server = server("").await;
    let over = now() + 500;
    server.cmd(&["HSET", SCANNER, "slot", "the dead", "until", &over.to_string()]).await;
    let topic = orders_with_values().scan_every(Duration::from_millis(100));
    let listener = Running::start(&server, |builder| builder.attach(topic, Notes::default().handler()));
    eventually(PATIENCE, "a scan", async || listener.attached().scans > 0).await;
    assert!(now() >= over + HOLD, "{} ms too early", over + HOLD - now());
    listener.stop().await;
}
