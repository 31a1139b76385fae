//! What the script does: pages are looked at anew, without taking away what somebody is at.

use std::time::Duration;

use serde_json::json;

use crate::browser::scene::{Do, Scene};
use keylapse_browser::Chrome;

/// Waits of the page take a fiftieth of their time, and `hide` makes it a page that nobody sees.
const QUICK: &str = r"
  const wait = window.setTimeout;
  window.setTimeout = (act, ms, ...more) => wait(act, ms < 10000 ? ms / 50 : ms, ...more);
  window.hide = (is) => {
    Object.defineProperty(document, 'hidden', { configurable: true, get: () => is });
    document.dispatchEvent(new Event('visibilitychange'));
  };
";
/// So long that ten looks would have been taken.
const A_WHILE: &str = "new Promise((done) => wait(done, 1000)).then(() => true)";

async fn quick() -> Option<(Chrome, Scene)> {
    let mut chrome = Chrome::start().await?;
    chrome.before_pages(QUICK).await;
    let scene = Scene::empty().await;
    scene.arm(b"first", Duration::from_secs(3600), Do::Succeed).await;
    Some((chrome, scene))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_new_is_shown_and_what_somebody_is_at_stays() {
    let Some((mut chrome, scene)) = quick().await else { return };
    chrome.go(&scene.url("/topic?name=order.unpaid")).await;
    chrome.eval("document.getElementById('conditions').open = true; window.same = true").await;
    chrome.eval("document.querySelector('tbody a').focus()").await;
    scene.arm(b"second", Duration::from_secs(60), Do::Succeed).await;
    chrome.shows("order:unpaid:second").await;
    assert_eq!(chrome.eval("window.same").await, json!(true), "it is the same page");
    assert_eq!(chrome.eval("document.getElementById('conditions').open").await, json!(true));
    assert_eq!(chrome.eval("document.activeElement.innerText").await, json!("order:unpaid:first"));
    // What somebody writes is not taken away.
    chrome.press("/").await;
    chrome.write("key:order:unpaid:f*").await;
    scene.arm(b"third", Duration::from_secs(30), Do::Succeed).await;
    chrome.eval(A_WHILE).await;
    assert!(!chrome.text().await.contains("order:unpaid:third"));
    assert_eq!(chrome.eval("document.getElementById('filter').value").await, json!("key:order:unpaid:f*"));
    chrome.press("Enter").await;
    chrome.shows("1 of 3 match").await;
    assert!(chrome.eval("location.search").await.as_str().unwrap().contains("filter=key"));
}

/// A page says that it is fresh, also where nothing on it has changed; until the server is gone.
#[tokio::test(flavor = "multi_thread")]
async fn how_fresh_a_page_is_stays_true_while_it_is_looked_at_anew() {
    let Some((mut chrome, mut scene)) = quick().await else { return };
    chrome.go(&scene.url("/topic?name=order.unpaid")).await;
    let at = chrome.eval("document.querySelector('#source time').dateTime").await;
    chrome.until(&format!("document.querySelector('#source time').dateTime > {at}")).await;
    scene.server.kill().await;
    chrome.shows("Redis does not answer").await;
    let said = chrome.eval("document.getElementById('source').innerText").await;
    assert!(
        said.as_str().unwrap().contains("namespace keylapse") && !said.as_str().unwrap().contains("as of")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_nobody_sees_asks_for_nothing() {
    let Some((mut chrome, scene)) = quick().await else { return };
    chrome.go(&scene.url("/topics")).await;
    chrome.eval("window.hide(true)").await;
    // What is under way ends.
    chrome.eval(A_WHILE).await;
    chrome.requests().await;
    chrome.eval(A_WHILE).await;
    assert_eq!(chrome.requests().await, 0);
    chrome.eval("window.hide(false)").await;
    chrome.eval(A_WHILE).await;
    assert!(chrome.requests().await > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_lead_from_page_to_page() {
    let Some((mut chrome, scene)) = quick().await else { return };
    chrome.go(&scene.url("/topics")).await;
    for (key, shown) in [("d", "No dead letters"), ("l", "No listeners"), ("t", "order.unpaid")] {
        chrome.press(key).await;
        chrome.shows(shown).await;
    }
    chrome.press("?").await;
    chrome.until("document.getElementById('help').open").await;
    // A dialog keeps keys to itself.
    chrome.press("d").await;
    chrome.press("?").await;
    chrome.until("!document.getElementById('help').open").await;
    chrome.press("/").await;
    chrome.until("document.activeElement.id === 'filter'").await;
    // Letters that somebody writes are no commands.
    chrome.press("d").await;
    chrome.until("document.getElementById('filter').value === 'd'").await;
    chrome.press("Escape").await;
    chrome.until("document.activeElement === document.body").await;
    chrome.click("button", "Shortcuts ?").await;
    chrome.until("document.getElementById('help').open").await;
    assert!(chrome.complaints().await.is_empty());
}

/// An idle dashboard asks for little: of the server, and of Redis.
#[tokio::test(flavor = "multi_thread")]
async fn those_who_look_share_what_is_asked() {
    let Some(mut chrome) = Chrome::start().await else { return };
    let scene = Scene::empty().await;
    scene.arm(b"a", Duration::from_secs(3600), Do::Succeed).await;
    chrome.go(&scene.url("/topics")).await;
    scene.server.cmd(&["CONFIG", "RESETSTAT"]).await;
    let all = "Promise.all(Array.from({length: 30}, () => fetch(location.href))).then((all) => all.every((one) => one.ok))";
    assert_eq!(chrome.eval(all).await, json!(true));
    let said: String = redis::from_redis_value(scene.server.cmd(&["INFO", "commandstats"]).await).unwrap();
    let calls: u64 = said
        .lines()
        .filter(|line| !line.contains("config") && !line.contains("cmdstat_info"))
        .filter_map(|line| line.split("calls=").nth(1)?.split(',').next()?.parse::<u64>().ok())
        .sum();
    assert!(calls <= 24, "30 looks have asked {calls} times: {said}");
}
