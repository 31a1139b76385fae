//! A subscription that is refused, or delivers nothing: keys are looked at all the same.

use std::time::Duration;

use keylapse::Expiry;
use keylapse::health::EventMode;
use keylapse_support::Proxy;

use crate::scene::{ALL_FLAGS, Harness, Notes, Running, orders_with_values, server};

/// Enrols a key, and waits until it has fired.
async fn is_found(harness: &Harness, id: &str) {
    let deadline = harness.enrol(id, "a sofa", 3000).await;
    let run = harness.fires_once(id, "a sofa", deadline).await;
    assert_eq!(run.expiry, Expiry::Recovered);
}

#[tokio::test]
async fn without_the_right_to_subscribe_keys_are_read_by_calls() {
    let mode = EventMode::Unsubscribed;
    for rules in [&["resetchannels", "&keylapse:*"][..], &["-subscribe"]] {
        let harness = with_rules_of_the_blind(rules).await;
        harness.listener.until_mode(mode).await;
        is_found(&harness, "1").await;
        assert_eq!(harness.listener.stats.mode(), mode, "{rules:?}");
        harness.listener.stop().await;
    }
}

#[tokio::test]
async fn a_right_that_is_granted_later_ends_that() {
    let harness = with_rules_of_the_blind(&["resetchannels", "&keylapse:*"]).await;
    harness.listener.until_mode(EventMode::Unsubscribed).await;
    harness.cmd(&["ACL", "SETUSER", keylapse_support::APP_USER, "allchannels"]).await;
    harness.listener.until_mode(EventMode::Changes).await;
    let deadline = harness.enrol("1", "a sofa", 3000).await;
    assert_eq!(harness.fires_once("1", "a sofa", deadline).await.expiry, Expiry::Announced);
    harness.listener.stop().await;
}

async fn with_rules_of_the_blind(rules: &[&str]) -> Harness {
    let server = server(ALL_FLAGS).await;
    server.cmd(&[&["ACL", "SETUSER", keylapse_support::APP_USER], rules].concat()).await;
    Harness::begin_with(server, |server, notes| {
        let topic = orders_with_values().scan_every(Duration::from_millis(100));
        Running::start(server, |builder| builder.attach(topic, notes.handler()))
    })
}

#[tokio::test]
async fn a_subscription_that_delivers_nothing_is_made_anew_until_one_does() {
    let server = server(ALL_FLAGS).await;
    let proxy = Proxy::before(&server).await;
    proxy.hush(true);
    let url = proxy.app_url();
    let harness = Harness::begin_with(server, |_, notes: &Notes| {
        let topic = orders_with_values().scan_every(Duration::from_millis(100));
        Running::at(&url, |builder| builder.attach(topic, notes.handler()))
    });
    harness.listener.until_mode(EventMode::ScanOnly).await;
    is_found(&harness, "1").await;
    proxy.hush(false);
    harness.listener.until_mode(EventMode::Changes).await;
    let deadline = harness.enrol("2", "a lamp", 3000).await;
    assert_eq!(harness.fires_once("2", "a lamp", deadline).await.expiry, Expiry::Announced);
    harness.listener.stop().await;
}
