//! The live tail: of a listener, and of what the test itself makes up.

use std::time::Duration;

use keylapse_browser::Chrome;
use serde_json::json;

use crate::browser::scene::{Do, Scene};

/// A source of events that the test itself feeds.
const FAKE: &str = r"
  window.EventSource = class {
    static CLOSED = 2;
    constructor(url) { this.url = url; this.readyState = 1; window.source = this; window.setTimeout(() => this.onopen(), 0); }
    addEventListener(kind, hear) { (this.hear ||= {})[kind] = hear; }
    close() { this.readyState = 2; window.ended = (window.ended || 0) + 1; }
  };
  window.tell = (told) => window.source.hear[told.missed ? 'missed' : 'tail']({ data: JSON.stringify(told) });
";

#[tokio::test(flavor = "multi_thread")]
async fn what_a_listener_does_is_shown_as_it_does_it() {
    let Some(mut chrome) = Chrome::start().await else { return };
    let mut scene = Scene::empty().await;
    scene.listen().await;
    chrome.go(&scene.url("/tail?topic=order.unpaid")).await;
    chrome.shows("Watching live.").await;
    scene.arm(b"told", Duration::ZERO, Do::Succeed).await;
    for text in ["order:unpaid:told", "started", "done"] {
        chrome.shows(text).await;
    }
    chrome.click("link", "order:unpaid:told").await;
    chrome.shows("Timeline").await;
    assert!(chrome.complaints().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_told_is_shown_the_newest_first() {
    let Some(mut chrome) = Chrome::start().await else { return };
    chrome.before_pages(FAKE).await;
    let mut scene = Scene::empty().await;
    scene.fill().await;
    chrome.go(&scene.url("/tail?topic=order.unpaid")).await;
    chrome.shows("Watching live.").await;
    assert_eq!(chrome.eval("new URL(source.url, location).search").await, json!("?topic=order.unpaid"));
    let key = "<img src=x onerror=window.__xss=1>\\n";
    for told in [
        json!({"topic": "order.unpaid", "partition": 0, "at_ms": 1_795_599_000_123_u64, "key": key, "id": null, "event": "started", "attempt": 1, "late_ms": 1500}),
        json!({"topic": "order.unpaid", "partition": 0, "at_ms": 1_795_599_000_223_u64, "key": "b", "id": null, "event": "dead", "reason": "exhausted", "attempt": 4}),
        json!({"missed": "counted", "count": 7}),
    ] {
        chrome.eval(&format!("tell({told})")).await;
    }
    chrome.eval("source.hear.tail({data: 'no JSON'})").await;
    let shown = chrome.text().await;
    for text in [key, "09:30:00.123", "1.5s late", "attempt 4, exhausted", "Missed events: 7"] {
        assert!(shown.contains(text), "{text} in {shown}");
    }
    assert_eq!(
        chrome.eval("window.__xss === undefined && !document.querySelector('main img')").await,
        json!(true)
    );
    // The newest first, and no more than somebody can read.
    assert_eq!(
        chrome.eval("document.querySelector('#tail tbody tr').innerText").await,
        json!("Missed events: 7")
    );
    chrome.eval("for (let n = 0; n < 600; n++) tell({missed: 'counted', count: n})").await;
    assert_eq!(chrome.eval("document.querySelectorAll('#tail tbody tr').length").await, json!(500));
    chrome.click("button", "Pause").await;
    chrome.shows("Paused. New events are not shown.").await;
    assert_eq!(chrome.eval("window.ended").await, json!(1));
    chrome.click("button", "Resume").await;
    chrome.shows("Watching live.").await;
    assert!(chrome.complaints().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_script_the_journal_is_shown_or_a_command() {
    let Some(mut chrome) = Chrome::start().await else { return };
    chrome.without_script(true).await;
    let mut scene = Scene::empty().await;
    scene.keep_journal();
    scene.listen().await;
    scene.arm(b"done", Duration::ZERO, Do::Succeed).await;
    let topic = scene.console().await.topic("order.unpaid").await.unwrap();
    keylapse_support::eventually(keylapse_browser::WITHIN, "an entry of the journal", async || {
        !topic.journal(None, 1).await.unwrap().entries.is_empty()
    })
    .await;
    chrome.go(&scene.url("/tail?topic=order.unpaid")).await;
    chrome.shows("order:unpaid:done").await;
    chrome.shows("keylapse tail order.unpaid").await;
    chrome.click("link", "order:unpaid:done").await;
    chrome.shows("ended: done, at attempt 1").await;
}
