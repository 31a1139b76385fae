//! Where everything burns, the pages say so: with a word and a colour.

use serde_json::json;

use crate::browser::looking::check;
use crate::browser::scene::Scene;
use crate::burning::{BURNING, HOST, light};
use keylapse_browser::Chrome;

/// Elements whose colour is that of any text.
const PLAIN: &str = r#"((selector) => {
  const colour = (one) => getComputedStyle(one).color;
  const plain = [document.body, document.querySelector("thead th")].map(colour);
  return [...document.querySelectorAll(selector)].filter((one) => plain.includes(colour(one))).map((one) => one.innerText);
})"#;

#[tokio::test(flavor = "multi_thread")]
async fn the_first_page_names_all_that_burns_with_a_word_and_a_colour() {
    let Some(mut chrome) = Chrome::start().await else { return };
    let scene = Scene::empty().await;
    let _fire = light(&scene.server).await;
    for (is_dark, width) in [(false, 1280), (true, 360)] {
        chrome.dark(is_dark).await;
        chrome.size(width, 800).await;
        chrome.go(&scene.url("/topics")).await;
        let shown = chrome.eval("document.getElementById('alarms').innerText").await;
        let shown = shown.as_str().unwrap();
        for text in [
            "shop.example:443: 10 failures: connection refused <b>, tried again in",
            "4 of 4 attempts failed in the last five minutes",
            "2 dead letters trimmed since the topic was created",
            "paused: the mail provider is down (1 undelivered timer)",
            "no listener serves it",
            "listener old-host (process 4711): no report for 1m",
        ] {
            assert!(shown.contains(text), "{text:?} in {shown}");
        }
        for kind in BURNING {
            assert!(shown.contains(&kind.as_str().replace('-', " ")), "{kind:?} in {shown}");
        }
        assert_eq!(chrome.eval(&format!("{PLAIN}('#alarms .state')")).await, json!([]));
        check(&mut chrome, "/topics").await;
    }
    // What is written there leads to where one acts.
    for (link, shown) in [("order.unpaid", "Destinations of order.unpaid"), ("listener", "old-host")] {
        chrome.go(&scene.url("/topics")).await;
        chrome.eval(&format!("[...document.querySelectorAll('#alarms a')].find((one) => one.innerText.includes('{link}')).click()")).await;
        chrome.shows(shown).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_that_all_fail_look_like_it() {
    let Some(mut chrome) = Chrome::start().await else { return };
    let scene = Scene::empty().await;
    let _fire = light(&scene.server).await;
    chrome.go(&scene.url("/topics")).await;
    let row = "[...document.querySelectorAll('#topics tbody tr')].find((row) => row.innerText.includes('call.missed'))";
    let cell = |label: &str| format!("{row}.querySelector('[data-label=\"{label}\"]')");
    assert_eq!(
        chrome.eval(&format!("{}.innerText", cell("Failing 5m / 1h"))).await,
        json!("100.0 % / 100.0 %")
    );
    assert_eq!(chrome.eval(&format!("{}.innerText", cell("State"))).await, json!("failing"));
    let undelivered = chrome.eval(&format!("{}.innerText", cell("Undelivered"))).await;
    assert!(undelivered.as_str().unwrap().starts_with("4\noldest "), "{undelivered}");
    let same = |one: &str, other: &str, what: &str| {
        format!("getComputedStyle({one}).{what} === getComputedStyle({other}).{what}")
    };
    for (one, other, what) in [
        (cell("Failing 5m / 1h"), cell("Timers"), "color"),
        (cell("State") + ".firstElementChild", cell("Timers"), "color"),
        (
            format!("{row}.cells[1]"),
            "document.querySelector('#topics thead th')".to_owned(),
            "backgroundColor",
        ),
    ] {
        assert_eq!(chrome.eval(&same(&one, &other, what)).await, json!(false), "{one}");
    }
    chrome.go(&scene.url("/topic?name=call.missed")).await;
    chrome.shows("4 of 4 attempts failed in the last five minutes").await;
    check(&mut chrome, "/topic").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_that_hold_work_back_are_shown_and_tried() {
    let Some(mut chrome) = Chrome::start().await else { return };
    let scene = Scene::empty().await;
    let fire = light(&scene.server).await;
    chrome.go(&scene.url("/topic?name=order.unpaid")).await;
    chrome.shows("shop.example:443: 10 failures").await;
    for (is_dark, width) in [(true, 1280), (false, 360)] {
        chrome.dark(is_dark).await;
        chrome.size(width, 800).await;
        chrome.go(&scene.url("/destinations?topic=order.unpaid")).await;
        let shown = chrome.text().await;
        for text in [
            HOST,
            "open",
            "10",
            "connection refused <b>",
            "503 Service Unavailable",
            "in 1m",
            "mail.example:443",
        ] {
            assert!(shown.contains(text), "{text:?} in {shown}");
        }
        assert_eq!(chrome.eval(&format!("{PLAIN}('#destinations .state')")).await, json!([]));
        check(&mut chrome, "/destinations").await;
    }
    chrome.click("button", "Try now").await;
    chrome.shows("Requested: listeners call the destination now").await;
    keylapse_support::eventually(keylapse_browser::WITHIN, "the call", async || {
        *fire.hosts.tried.lock().unwrap() == [HOST]
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_is_silent_says_how_long_ago_it_reported() {
    let Some(mut chrome) = Chrome::start().await else { return };
    let scene = Scene::empty().await;
    let _fire = light(&scene.server).await;
    chrome.go(&scene.url("/listeners")).await;
    let row = "[...document.querySelectorAll('tbody tr')].find((row) => row.innerText.includes('old-host'))";
    let row = chrome.eval(&format!("{row}.innerText")).await;
    let row = row.as_str().unwrap();
    assert!(row.contains("silent") && row.contains("1m") && row.contains("ago"), "{row}");
    assert_eq!(chrome.eval(&format!("{PLAIN}('#listeners .state.silent')")).await, json!([]));
    chrome.shows("2 listeners, 1 of them silent").await;
    check(&mut chrome, "/listeners").await;
}

/// Two dashboards that are open side by side can be told apart.
#[tokio::test(flavor = "multi_thread")]
async fn each_page_says_which_redis_and_how_fresh_it_is() {
    let Some(mut chrome) = Chrome::start().await else { return };
    let scene = Scene::shop().await;
    let at = scene.server.plain_url();
    let at = at.rsplit(['@', '/']).find(|part| part.contains(':')).unwrap();
    for path in [
        "/topics",
        "/topic?name=order.unpaid",
        "/destinations?topic=order.unpaid",
        "/timer?topic=order.unpaid&key=order:unpaid:1000",
        "/dead",
        "/listeners",
        "/servers",
        "/tail",
        "/topic/bulk?name=order.unpaid&state=waiting&verb=cancel",
    ] {
        chrome.go(&scene.url(path)).await;
        let said = chrome.eval("document.getElementById('source').innerText").await;
        let said = said.as_str().unwrap();
        assert!(said.contains(at) && said.contains("namespace keylapse"), "{path}: {said}");
        assert!(
            said.contains("as of ") && said.contains(" UTC, read ") && said.contains("s ago"),
            "{path}: {said}"
        );
    }
    chrome.go(&scene.url("/topics")).await;
    let said = chrome.eval("document.getElementById('source').innerText").await;
    assert!(said.as_str().unwrap().contains("listeners’ figures up to "), "{said}");
}
