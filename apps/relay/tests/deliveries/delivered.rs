//! What receivers are told, and when.

use std::time::Duration;

use futures::future::join_all;
use http::HeaderMap;
use keylapse_console::{Action, EntryState};
use keylapse_support::eventually;
use standardwebhooks::Webhook;

use crate::rig::SECRET;
use crate::{Heard, Receiver, Rig, Then};

const FAST: &str = "retry = { every = \"50ms\" }";
pub(crate) const ALLOW: &str = "allow-addresses = [\"127.0.0.1\"]";

fn verify(call: &Heard, secret: &str) {
    let mut headers = HeaderMap::new();
    for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        headers.insert(name, call.header(name).parse().unwrap());
    }
    Webhook::new(secret).unwrap().verify(&call.body, &headers).expect("the signature is right");
}

#[tokio::test]
async fn an_expired_key_is_told_with_its_value_and_signed() {
    let receiver = Receiver::start(|_, _| Then::status(200)).await;
    let rig = Rig::of_keys(&receiver.url(), "keep-values = \"1KiB\"", ALLOW).await;
    rig.enrolling().await;
    rig.server.cmd(&["SET", "order:42", "{\"amount\":5}", "PX", "300"]).await;
    let call = receiver.calls(1).await.remove(0);
    verify(&call, SECRET);
    assert_eq!(call.line, "POST /hook HTTP/1.1");
    let json = call.json();
    let data = &json["data"];
    assert_eq!((json["type"].as_str(), data["topic"].as_str()), (Some("timer.lapsed"), Some("orders")));
    assert_eq!((data["key"].as_str(), data["captures"]["id"].as_str()), (Some("order:42"), Some("42")));
    assert_eq!((data["attempt"].as_u64(), data["value"]["amount"].as_u64()), (Some(1), Some(5)));
    assert_eq!(data["id"], call.id());
}

#[tokio::test]
async fn all_attempts_and_replays_have_one_id() {
    let receiver = Receiver::start(|call, _| Then::status(if call < 4 { 500 } else { 200 })).await;
    let rig = Rig::of_timers(&receiver.url(), &format!("{FAST}\nmax-attempts = 3"), ALLOW).await;
    rig.arm("1", "text").await;
    let letter = rig.letters(1).await.remove(0);
    assert!(format!("{letter:?}").contains("500"), "{letter:?}");
    let topic = rig.console().await.topic("orders").await.unwrap();
    topic.act(Action::Replay, &letter.key, Some(&letter)).await.unwrap();
    let calls = receiver.calls(4).await;
    let ids: Vec<_> = calls.iter().map(Heard::id).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    calls.iter().for_each(|call| verify(call, SECRET));
    let attempts: Vec<_> = calls.iter().filter_map(|call| call.json()["data"]["attempt"].as_u64()).collect();
    assert_eq!(attempts, [1, 2, 3, 1]);
}

#[tokio::test]
async fn while_a_secret_is_replaced_receivers_know_either() {
    let receiver = Receiver::start(|_, _| Then::status(200)).await;
    let other = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let more = format!("{ALLOW}\nprevious-secret = {{ file = \"previous\" }}");
    let rig = Rig::with_secret(&receiver.url(), "", &more, ("previous", other)).await;
    rig.arm("1", "1").await;
    let call = receiver.calls(1).await.remove(0);
    verify(&call, SECRET);
    verify(&call, other);
    assert_eq!(call.header("webhook-signature").split(' ').count(), 2);
}

/// All that run at that moment are handed back, and go on once somebody has looked.
#[tokio::test]
async fn one_that_is_gone_pauses_the_topic_and_costs_no_timer() {
    const RUNNING: usize = 100;
    let receiver = Receiver::start(|call, _| {
        Then::Late(Duration::from_millis(200), if call <= RUNNING { 410 } else { 200 })
    })
    .await;
    let rig = Rig::of_timers(&receiver.url(), FAST, ALLOW).await;
    join_all((0..RUNNING).map(async |id| rig.arm(&id.to_string(), "1").await)).await;
    let console = rig.console().await;
    let topic = console.topic("orders").await.unwrap();
    eventually(Duration::from_secs(20), "all to wait in a paused topic", async || {
        let paused = format!("{:?}", topic.overview().await.unwrap()).contains("410");
        let waiting = topic.page(EntryState::Waiting, None, 1000).await.unwrap().entries.len();
        paused && waiting == RUNNING && rig.dead().await == 0
    })
    .await;
    assert_eq!(receiver.count(), RUNNING);
    topic.resume().await.unwrap();
    rig.none_left().await;
    assert_eq!((receiver.count(), rig.dead().await), (2 * RUNNING, 0));
    let calls = receiver.calls(2 * RUNNING).await;
    assert!(calls.iter().all(|call| call.json()["data"]["attempt"] == 1));
}

#[tokio::test]
async fn of_many_receivers_one_that_is_gone_pauses_nothing() {
    let receiver =
        Receiver::start(|_, call| Then::status(if call.line.contains("/gone") { 410 } else { 200 })).await;
    let url = receiver.url().replace("/hook", "/{payload.path}");
    let host = receiver.host();
    let rig = Rig::of_timers(&url, FAST, &format!("{ALLOW}\nhosts = [\"{host}\"]")).await;
    rig.arm("1", r#"{"path":"gone"}"#).await;
    rig.letters(1).await;
    rig.arm("2", r#"{"path":"here"}"#).await;
    let calls = receiver.calls(2).await;
    assert_eq!(calls[1].line, "POST /here HTTP/1.1");
}

#[tokio::test]
async fn too_many_requests_use_up_no_attempt() {
    let receiver = Receiver::start(|call, _| match call {
        1..3 => Then::Answer(429, vec![("retry-after", "0".to_owned())]),
        _ => Then::status(200),
    })
    .await;
    let rig = Rig::of_timers(&receiver.url(), "max-attempts = 1", ALLOW).await;
    rig.arm("1", "1").await;
    let calls = receiver.calls(3).await;
    assert!(calls.iter().all(|call| call.json()["data"]["attempt"] == 1));
}

/// A key that is written and expires between the subscriptions of two listeners would be lost.
#[tokio::test]
async fn a_listener_ends_once_its_successor_receives_the_events_of_attached_keys() {
    let receiver = Receiver::start(|_, _| Then::status(200)).await;
    let mut rig = Rig::of_keys(&receiver.url(), "", "allow-addresses = [\"127.0.0.1\"]").await;
    rig.enrolling().await;
    for _ in 0..2 {
        let faults = rig.follow_keys(&receiver.url(), "allow-addresses = [\"127.0.0.1\"]").await;
        assert!(faults.is_empty(), "{faults:?}");
    }
    rig.stop().await;
}
