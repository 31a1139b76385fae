//! While there is no Redis each page says so, and is there again once Redis is.

use std::time::Duration;

use keylapse_web::Access;
use serde_json::json;

use crate::browser::scene::{Do, Scene};
use keylapse_browser::Chrome;

/// Waits of the page take a twentieth of their time.
const QUICK: &str =
    "const wait = window.setTimeout; window.setTimeout = (act, ms) => wait(act, ms < 10000 ? ms / 20 : ms)";

const PAGES: [&str; 7] = [
    "/topics",
    "/topic?name=order.unpaid",
    "/timer?topic=order.unpaid&key=order:unpaid:a",
    "/dead",
    "/listeners",
    "/servers",
    "/tail?topic=order.unpaid",
];

#[tokio::test(flavor = "multi_thread")]
async fn each_page_says_that_redis_is_gone_and_recovers() {
    let Some(mut chrome) = Chrome::start().await else { return };
    chrome.before_pages(QUICK).await;
    let mut scene = Scene::with(|web| web, Access::to_loopback()).await;
    scene.arm(b"a", Duration::from_secs(3600), Do::Succeed).await;
    chrome.go(&scene.url("/topics")).await;
    scene.server.kill().await;
    // The page that somebody looks at says so by itself.
    chrome.shows("Redis does not answer").await;
    for path in PAGES {
        chrome.go(&scene.url(path)).await;
        chrome.shows("Redis does not answer").await;
        let status = chrome.eval("performance.getEntriesByType('navigation')[0].responseStatus").await;
        assert_eq!(status, json!(503), "{path}");
    }
    chrome.go(&scene.url("/topics")).await;
    scene.server.restart().await;
    chrome.shows("No topic is registered").await;
    scene.arm(b"a", Duration::from_secs(3600), Do::Succeed).await;
    for path in PAGES {
        chrome.go(&scene.url(path)).await;
        chrome.until("!document.body.innerText.includes('Redis does not answer')").await;
    }
}
