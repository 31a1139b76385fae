//! What others have written stays text, wherever it is shown.

use std::time::{Duration, SystemTime};

use keylapse::{Key, Topic};
use serde_json::json;

use crate::browser::scene::{Do, Scene};
use keylapse_browser::Chrome;

/// What would be run if it were not text, and what would hide or turn around what stands beside it.
const HOSTILE: [&str; 8] = [
    "<script>window.__xss=1</script>",
    "\"><img src=x onerror=\"window.__xss=1\">",
    "'><svg onload=window.__xss=1>",
    "javascript:window.__xss=1",
    "{{7*7}}{% raw %}",
    "</textarea></title><iframe srcdoc='<script>parent.__xss=1</script>'>",
    "\u{202e}evil\u{2066}\u{200b}\u{7}\u{1b}[31m\r\n\t\0",
    "&lt;script&gt;&#x3c;img/src/onerror=window.__xss=1&#x3e;",
];

async fn unhurt(chrome: &mut Chrome, url: &str) {
    assert!(chrome.eval("window.__xss === undefined").await == json!(true), "{url}");
    let foreign = "document.querySelectorAll('main img, main iframe, main script, main textarea, a[href^=javascript]').length";
    assert_eq!(chrome.eval(foreign).await, json!(0), "{url}");
    let complaints = chrome.complaints().await;
    assert!(complaints.is_empty(), "{url}: {complaints:?}");
    // Nothing turns around what stands beside it.
    let odd = r"/[\u202a-\u202e\u2066-\u2069\u200b-\u200f\u0000-\u0008\u001b]/.test(document.body.innerText)";
    assert_eq!(chrome.eval(odd).await, json!(false), "{url}");
}

/// The report of a listener that nobody has started.
fn listener() -> String {
    json!({
        "at": keylapse_web::ms_of(SystemTime::now()), "id": HOSTILE[1], "host": HOSTILE[0], "pid": 1, "version": HOSTILE[6],
        "since": 0, "running": 0, "limit": 1, "topics": { HOSTILE[4]: {}, HOSTILE[2]: {} },
        "nodes": [{ "node": HOSTILE[3], "mode": HOSTILE[7], "gap": HOSTILE[5], "gaps": 1 }],
    })
    .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_have_written_is_text() {
    let Some(mut chrome) = Chrome::start().await else { return };
    let scene = Scene::with(|web| web.show_payloads(true), keylapse_web::Access::to_loopback()).await;
    let odd = Topic::<Do>::named("odd", "{rest..}").unwrap();
    let console = scene.console().await;
    for (at, text) in (1_u64..).zip(HOSTILE) {
        let armed = scene.schedule.arm(
            &odd,
            Key(text.as_bytes()),
            Duration::from_secs(3600 + at),
            &Do::Die(text.to_owned()),
        );
        assert!(armed.await.unwrap().is_armed());
        scene.bury_in("odd", text, at, text).await;
    }
    let topic = console.topic("odd").await.unwrap();
    topic.pause(HOSTILE[1]).await.unwrap();
    // What is registered, and is no topic.
    scene.server.cmd(&["HSET", "keylapse:topics", HOSTILE[0], HOSTILE[1]]).await;
    for path in [
        "/topics",
        "/topic?name=odd",
        "/topic?name=odd&state=dead",
        "/dead?since=ever",
        "/tail?topic=odd",
        "/servers",
    ] {
        chrome.go(&scene.url(path)).await;
        unhurt(&mut chrome, path).await;
    }
    chrome.go(&scene.url("/topic?name=odd&state=dead")).await;
    let shown = chrome.text().await;
    for text in &HOSTILE[..6] {
        assert!(shown.contains(text), "{text} in {shown}");
    }
    for text in [HOSTILE[1], HOSTILE[5], HOSTILE[6]] {
        let written = keylapse_console::text::escape(text.as_bytes());
        for (path, name) in [
            ("/timer?topic=odd&key=", &*written),
            ("/topics?filter=", text),
            ("/topic?name=", text),
            ("/topic?name=odd&filter=", text),
            ("/topic?name=odd&state=", text),
            ("/topic?name=odd&after=", text),
            ("/topic/bulk?name=odd&state=dead&verb=drop&filter=", text),
            ("/topic/bulk?name=odd&state=dead&verb=", text),
            ("/topics?outcome=", text),
            ("/timer?topic=odd&key=a&outcome=", text),
            ("/tail?topic=", text),
        ] {
            let said = chrome.eval(&format!("encodeURIComponent({})", json!(name))).await;
            let url = scene.url(&format!("{path}{}", said.as_str().unwrap()));
            chrome.go(&url).await;
            unhurt(&mut chrome, &url).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_listener_says_of_itself_is_text() {
    let Some(mut chrome) = Chrome::start().await else { return };
    let scene = Scene::empty().await;
    scene.server.cmd(&["HSET", "keylapse:listeners", "hostile", &listener()]).await;
    chrome.go(&scene.url("/listeners")).await;
    for text in [HOSTILE[0], HOSTILE[3], HOSTILE[4]] {
        chrome.shows(text).await;
    }
    unhurt(&mut chrome, "listeners").await;
}

/// The longest keys; of the second no address is short enough for all that stands between a browser and a server.
#[tokio::test(flavor = "multi_thread")]
async fn the_longest_keys_break_no_page() {
    let Some(mut chrome) = Chrome::start().await else { return };
    let scene = Scene::empty().await;
    for long in ["<b>".repeat(1300).into_bytes(), vec![0xff; 4000]] {
        scene.arm(&long, Duration::from_secs(60), Do::Succeed).await;
    }
    chrome.size(360, 800).await;
    chrome.go(&scene.url("/topic?name=order.unpaid")).await;
    unhurt(&mut chrome, "long keys").await;
    assert_eq!(chrome.eval("document.scrollingElement.scrollWidth").await, json!(360));
    assert_eq!(chrome.eval("document.querySelectorAll('tbody th').length").await, json!(2));
    assert_eq!(
        chrome.eval("document.querySelectorAll('tbody th a').length").await,
        json!(1),
        "one is too long"
    );
    chrome.eval("document.querySelector('tbody th a').click()").await;
    chrome.shows("Next step").await;
    unhurt(&mut chrome, "its page").await;
    assert_eq!(chrome.eval("document.scrollingElement.scrollWidth").await, json!(360));
}
