//! What is done to one timer, one letter, or a topic.

use keylapse_console::ActionResult;
use serde_json::json;

use crate::http::shop::{HOUR, PAYLOAD, Shop};
use crate::http::site::Site;

const FIRST: &str = "/api/v1/topics/order/timers/order:first";

#[tokio::test]
async fn timers_are_armed_moved_and_made_due() {
    let shop = Shop::open().await;
    let site = Site::open(&shop.console).await;
    let replaced = site
        .say("PUT", FIRST, &json!({"at_ms": 4_000_000_000_000_u64, "payload_base64": "AAE="}))
        .await
        .with(200);
    assert_eq!(
        (replaced["outcome"].as_str(), replaced["deadline_ms"].as_u64()),
        (Some("replaced"), Some(4_000_000_000_000))
    );
    let exists = site.say("PUT", FIRST, &json!({"in": "1h", "only_if_absent": true})).await.with(409);
    assert_eq!(exists["outcome"], "has_a_timer");
    let moved =
        site.post(&format!("{FIRST}/reschedule"), &json!({"at": "2090-01-01T00:00:00Z"})).await.with(200);
    assert_eq!(moved["deadline_ms"], 3_786_912_000_000_u64);
    let due = site.ask("POST", &format!("{FIRST}/run-now"), &[], "").await.with(200);
    assert_eq!((&due["outcome"], &due["key"]), (&"due_now".into(), &"order:first".into()));
    assert_eq!(shop.topic().await.overview().await.expect("an overview").due_in_1m, 1);
    let none = "/api/v1/topics/order/timers/order:none/run-now";
    assert_eq!(site.ask("POST", none, &[], "").await.with(404)["outcome"], "not_armed");
}

#[tokio::test]
async fn what_is_to_be_armed_is_read_as_a_whole_or_refused() {
    let shop = Shop::open().await;
    let site = Site::open(&shop.console).await;
    for (body, status, words) in [
        (json!({}), 400, "exactly one of"),
        (json!({"in": "1h", "at_ms": 1}), 400, "exactly one of"),
        (json!({"in": "soon"}), 400, "write a span"),
        (json!({"in": "1h", "payload": 1, "payload_base64": "AA=="}), 400, "both"),
        (json!({"in": "1h", "payload_base64": "?"}), 400, "base64"),
        (json!({"in": "1h", "topic": "other"}), 422, "unknown field"),
        (json!({"in": 5}), 422, "in"),
        (json!(["a"]), 422, "invalid length"),
    ] {
        site.say("PUT", FIRST, &body).await.refused(status, words);
    }
    site.ask("PUT", FIRST, &["Content-Type: application/json"], "{\"in\": ").await.refused(400, "JSON");
    // What is refused is not said again.
    for body in [
        format!(r#"{{"in": "1h", "payload": "{PAYLOAD}", "payload_base64": "{PAYLOAD}"}}"#),
        format!(r#"{{"in": "1h", "payload": "{PAYLOAD}"#),
        format!(r#"{{"in": "1h", "payload_base64": "{PAYLOAD}"}}"#),
        format!(r#"{{"in": "1h", "payload_base64": {{"{PAYLOAD}": 1}}}}"#),
        format!(r#"{{"payload": {{"{PAYLOAD}": "{PAYLOAD}"}}}}"#),
    ] {
        let answer = site.ask("PUT", FIRST, &["Content-Type: application/json"], &body).await;
        assert!((400..500).contains(&answer.status) && !answer.body.contains(PAYLOAD), "{answer:?}");
    }
    let elsewhere = "/api/v1/topics/order/timers/basket:7";
    site.say("PUT", elsewhere, &json!({"in": "1h"})).await.refused(400, "basket:7");
}

#[tokio::test]
async fn one_letter_is_replayed_and_another_dropped() {
    let shop = Shop::open().await;
    shop.bury(3).await;
    let site = Site::open(&shop.console).await;
    let letters = site.get("/api/v1/topics/order/entries?state=dead").await.with(200);
    let path = |at: usize| {
        let letter = &letters["entries"][at];
        let of = |field: &str| letter[field].to_string().replace('"', "");
        format!("/api/v1/topics/order/dead-letters/{}/{}-{}", of("key"), of("id"), of("at_ms"))
    };
    let replay = format!("{}/replay", path(0));
    assert_eq!(site.post(&replay, &json!({})).await.with(200)["outcome"], "replayed");
    site.post(&replay, &json!({})).await.refused(404, "no such dead letter");
    assert_eq!(site.ask("DELETE", &path(1), &[], "").await.with(200)["outcome"], "dropped");
    site.ask("DELETE", &path(1), &[], "").await.refused(404, "no such dead letter");
    // A key that has a timer keeps it, and its letter.
    let key = letters["entries"][2]["key"].as_str().expect("a key").as_bytes().to_vec();
    shop.arm(&key, HOUR).await;
    assert_eq!(
        site.post(&format!("{}/replay", path(2)), &json!({"as_new": true})).await.with(409)["outcome"],
        "has_a_timer"
    );
    assert_eq!((shop.dead().await, shop.timers().await), (1, 3));
}

#[tokio::test]
async fn a_topic_is_paused_for_a_reason_and_resumed() {
    let shop = Shop::open().await;
    let site = Site::open(&shop.console).await;
    let paused =
        site.post("/api/v1/topics/order/pause", &json!({"reason": "the shop moves"})).await.with(200);
    let (_, says) = ActionResult::of_word("paused").expect("an outcome");
    assert_eq!(paused, json!({"topic": "order", "outcome": "paused", "message": says}));
    assert_eq!(site.get("/api/v1/topics/order").await.with(200)["paused"], "the shop moves");
    site.ask("POST", "/api/v1/topics/order/resume", &[], "").await.with(200);
    assert_eq!(site.get("/api/v1/topics/order").await.with(200)["paused"], serde_json::Value::Null);
    let long = "a".repeat(10_000);
    site.post("/api/v1/topics/order/pause", &json!({"reason": long})).await.refused(400, "200");
}
