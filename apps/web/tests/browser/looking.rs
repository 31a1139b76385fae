//! What the pages show, to whom, and in which form.

use keylapse_support::eventually;
use serde_json::json;

use crate::browser::scene::Scene;
use keylapse_browser::{Chrome, WITHIN};

/// Each page, and what has to be seen there.
const PAGES: [(&str, &[&str]); 15] = [
    ("/topics", &["order.unpaid", "unserved", "the mail provider is down", "no listener serves it"]),
    ("/topics?filter=mail", &["1 of 3 topics", "mail.reminder"]),
    ("/topic?name=order.unpaid", &["order:unpaid:1000", "Run now…", "50 shown, and there may be more"]),
    ("/topic?name=order.unpaid&state=running", &["order:unpaid:2001"]),
    ("/topic?name=order.unpaid&state=quarantined", &["No quarantined timers."]),
    ("/topic?name=order.unpaid&state=dead", &["order:unpaid:3023", "exhausted", "connection refused"]),
    ("/topic?name=order.unpaid&state=dead&filter=error:~declined", &["order:unpaid:2003", "1 of 25 match"]),
    ("/topic?name=mail.reminder", &["the mail provider is down", "Resume"]),
    (
        "/timer?topic=order.unpaid&key=order:unpaid:2002",
        &["timeout while calling the shop", "it is not due yet", "Reschedule"],
    ),
    (
        "/timer?topic=order.unpaid&key=order:unpaid:2003",
        &["402: the card was declined", "Replay as new", "it is a dead letter"],
    ),
    ("/timer?topic=order.unpaid&key=order:unpaid:nothing", &["nothing is armed under this key"]),
    ("/dead", &["500 Internal Server Error", "25 dead letters in all"]),
    ("/listeners", &["1 listener", "order.unpaid"]),
    ("/servers", &["the server writes nothing to disk", "CONFIG SET appendonly yes"]),
    (
        "/topic/bulk?name=order.unpaid&state=dead&verb=replay&filter=error:~timeout",
        &["5 dead letters of order.unpaid matching error:~timeout will be replayed."],
    ),
];

/// What is amiss for somebody who hears a page, rather than sees it.
const AUDIT: &str = r#"(() => {
  const amiss = [];
  const name = (one) => (one.getAttribute("aria-label") || one.innerText || one.textContent || "").trim();
  if (document.documentElement.lang !== "en") amiss.push("no language");
  if (!document.title.trim()) amiss.push("no title");
  if (document.querySelectorAll("main").length !== 1) amiss.push("not one main");
  if (document.querySelectorAll("h1").length !== 1) amiss.push("not one h1");
  let level = 0;
  for (const one of document.querySelectorAll("main h1, main h2, main h3, main h4")) {
    const its = Number(one.tagName[1]);
    if (its > level + 1) amiss.push(`heading ${one.textContent} after level ${level}`);
    level = its;
  }
  for (const one of document.querySelectorAll("input:not([type=hidden]), select, textarea"))
    if (!one.labels.length && !one.getAttribute("aria-label")) amiss.push(`no label: ${one.outerHTML}`);
  for (const one of document.querySelectorAll("button, a[href], summary"))
    if (!name(one)) amiss.push(`no name: ${one.outerHTML}`);
  for (const one of document.querySelectorAll("th")) if (!one.scope) amiss.push(`no scope: ${one.outerHTML}`);
  for (const one of document.querySelectorAll("nav, [role=region]"))
    if (!one.getAttribute("aria-label")) amiss.push(`no label: ${one.outerHTML.slice(0, 80)}`);
  for (const one of document.querySelectorAll("svg"))
    if (one.getAttribute("aria-hidden") !== "true" && !one.getAttribute("aria-label")) amiss.push("a picture without words");
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  for (const id of ids) if (ids.filter((other) => other === id).length > 1) amiss.push(`twice: ${id}`);
  if (document.querySelector("[style], style, script:not([src]), [onclick]")) amiss.push("something inline");
  return amiss;
})()"#;

/// Texts that stand out too little from what is behind them.
const CONTRAST: &str = r#"(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4).reduce((sum, c, at) => sum + c * [.2126, .7152, .0722][at], 0);
  const behind = (one) => { for (; one; one = one.parentElement) { const colour = rgba(getComputedStyle(one).backgroundColor); if (colour[3] === 255) return colour; } return [255, 255, 255]; };
  const faint = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const one = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !one.checkVisibility()) continue;
    const [a, b] = [light(rgba(getComputedStyle(one).color)), light(behind(one))].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    if (ratio < 4.5) faint.add(`${ratio.toFixed(2)}: ${one.tagName}.${one.className} ${walker.currentNode.textContent.trim().slice(0, 40)}`);
  }
  return [...faint];
})()"#;

pub(super) async fn check(chrome: &mut Chrome, url: &str) {
    assert_eq!(chrome.eval(AUDIT).await, json!([]), "{url}");
    assert_eq!(chrome.eval(CONTRAST).await, json!([]), "{url}");
    let width = chrome.eval("document.scrollingElement.scrollWidth - innerWidth").await;
    assert!(width.as_i64() <= Some(0), "{url} is {width} px too wide");
    let complaints = chrome.complaints().await;
    assert!(complaints.is_empty(), "{url}: {complaints:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_page_shows_what_it_is_for_in_each_form() {
    let Some(mut chrome) = Chrome::start().await else { return };
    let scene = Scene::shop().await;
    for (is_scripted, is_dark, width) in [(true, false, 1280), (false, true, 360)] {
        chrome.without_script(!is_scripted).await;
        chrome.dark(is_dark).await;
        chrome.size(width, 800).await;
        for (path, texts) in PAGES {
            chrome.go(&scene.url(path)).await;
            let shown = chrome.text().await;
            for text in texts {
                assert!(shown.contains(text), "{path}: no {text:?} in {shown}");
            }
            check(&mut chrome, path).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_there_is_nothing_it_is_said_what_to_do() {
    let Some(mut chrome) = Chrome::start().await else { return };
    let scene = Scene::empty().await;
    for (path, text) in [
        ("/topics", "No topic is registered in namespace keylapse"),
        ("/topics?filter=a", "No topic name contains “a”"),
        ("/dead", "No dead letters"),
        ("/listeners", "No listeners"),
        ("/tail", "Choose a topic"),
        ("/login", "This server needs no token."),
    ] {
        chrome.go(&scene.url(path)).await;
        chrome.shows(text).await;
        chrome.size(360, 800).await;
        assert_eq!(chrome.eval(AUDIT).await, json!([]), "{path}");
        let width = chrome.eval("document.scrollingElement.scrollWidth").await;
        assert!(width.as_i64() <= Some(360), "{path} is {width} px wide");
    }
    for (path, text) in [
        ("/nothing", "Page not found"),
        ("/topic?name=nobody", "no topic is called"),
        ("/topic?name=a&state=odd", "unknown state"),
        ("/topic?name=a&filter=odd", "odd"),
        ("/topic?name=a&filter=%22a", "unclosed double quote"),
        ("/topic?name=a&after=odd", "invalid cursor"),
        ("/timer?topic=a&key=%5Cq", "a backslash that starts no escape"),
        ("/dead?since=1y", "unknown period"),
    ] {
        chrome.go(&scene.url(path)).await;
        chrome.shows(text).await;
    }
}

/// Pages of entries lead from one to the next until all were seen.
#[tokio::test(flavor = "multi_thread")]
async fn pages_lead_to_all_entries() {
    let Some(mut chrome) = Chrome::start().await else { return };
    let scene = Scene::shop().await;
    chrome.go(&scene.url("/topic?name=order.unpaid")).await;
    let keys = "[...document.querySelectorAll('tbody th')].map((one) => one.innerText)";
    let first = chrome.eval(keys).await;
    chrome.click("link", "Next").await;
    chrome.shows("order:unpaid:1059").await;
    let next = chrome.eval(keys).await;
    let all: std::collections::BTreeSet<_> = [first, next]
        .iter()
        .flat_map(|page| page.as_array().unwrap().clone())
        .map(|key| key.to_string())
        .collect();
    assert_eq!(all.len(), 61, "sixty that wait, and one that is retried");
    assert!(chrome.eval("location.search").await.as_str().unwrap().contains("after="));
    chrome.click("link", "First").await;
    chrome.shows("order:unpaid:1000").await;
}

/// Keys of other programs stand in a state of their own.
#[tokio::test(flavor = "multi_thread")]
async fn keys_of_other_programs_are_enrolled() {
    let Some(mut chrome) = Chrome::start().await else { return };
    let mut scene = Scene::empty().await;
    scene.server.cmd(&["SET", "session:<b>7</b>", "Ada", "EX", "600"]).await;
    scene.attach().await;
    eventually(WITHIN, "the enrolment", async || {
        chrome.go(&scene.url("/topic?name=session&state=tracked")).await;
        chrome.text().await.contains("session:<b>7</b>")
    })
    .await;
    check(&mut chrome, "tracked").await;
    chrome.click("link", "session:<b>7</b>").await;
    chrome.shows("tracked: the time of its expiry is known").await;
    // Nobody but their own programs can do anything to them.
    assert!(!chrome.has("button", "Cancel").await);
    chrome.go(&scene.url("/topics")).await;
    chrome.shows("attached").await;
    check(&mut chrome, "/topics").await;
}
