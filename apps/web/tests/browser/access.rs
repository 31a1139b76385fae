//! Who may come in, who may act, and below which path.

use std::time::Duration;

use keylapse_support::Server;
use keylapse_web::{Access, Token};
use serde_json::json;

use crate::browser::scene::{Do, Scene};
use keylapse_browser::Chrome;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const READ: &str = "fedcba9876543210fedcba9876543210";

fn access() -> Access {
    Access::to_loopback().token(Token::new(TOKEN).unwrap()).read_token(Token::new(READ).unwrap())
}

async fn log_in(chrome: &mut Chrome, scene: &Scene, token: &str) {
    chrome.go(&scene.url("/topics")).await;
    chrome.shows("Enter a token of this server").await;
    chrome.write(token).await;
    chrome.click("button", "Log in").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_shown_once_and_a_visit_ends() {
    let Some(mut chrome) = Chrome::start().await else { return };
    let scene = Scene::with(|web| web, access()).await;
    scene.arm(b"a", Duration::from_secs(3600), Do::Succeed).await;
    log_in(&mut chrome, &scene, "0123456789abcdef0123456789abcdeX").await;
    chrome.shows("Wrong token.").await;
    chrome.fill("textbox", "Token", TOKEN).await;
    chrome.press("Enter").await;
    chrome.shows("order.unpaid").await;
    let cookies = chrome.call("Network.getCookies", json!({})).await;
    let cookie = &cookies["cookies"][0];
    assert_eq!(
        [&cookie["httpOnly"], &cookie["sameSite"], &cookie["path"]],
        [&json!(true), &json!("Strict"), &json!("/")]
    );
    assert!(!cookie["value"].as_str().unwrap().contains(TOKEN));
    chrome.go(&scene.timer("a")).await;
    chrome.click("button", "Cancel").await;
    chrome.shows("Cancelled: it will not run.").await;
    chrome.click("button", "Log out").await;
    chrome.shows("Enter a token of this server").await;
    chrome.go(&scene.url("/topics")).await;
    chrome.shows("Enter a token of this server").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_only_look_has_no_buttons_that_act() {
    let Some(mut chrome) = Chrome::start().await else { return };
    let looks = Scene::with(|web| web, access()).await;
    let read_only = Scene::with(|web| web.read_only(true), Access::to_loopback()).await;
    log_in(&mut chrome, &looks, READ).await;
    chrome.shows("No topic is registered").await;
    for scene in [&looks, &read_only] {
        scene.arm(b"a", Duration::from_secs(3600), Do::Succeed).await;
        scene.bury("order:unpaid:dead", 1, "timeout").await;
        for path in ["/topics", "/topic?name=order.unpaid", "/topic?name=order.unpaid&state=dead"] {
            chrome.go(&scene.url(path)).await;
            chrome.shows("read-only").await;
            assert_eq!(
                chrome
                    .eval(
                        "document.querySelectorAll('main form[method=post], main button[name=verb]').length"
                    )
                    .await,
                json!(0),
                "{path}"
            );
        }
        for key in ["a", "dead"] {
            chrome.go(&scene.timer(key)).await;
            assert_eq!(chrome.eval("document.querySelectorAll('main button').length").await, json!(0));
        }
        let ask = "fetch(location.pathname.replace('timer', 'timer/act'), {method: 'POST', body: new URLSearchParams(\
                   {topic: 'order.unpaid', key: 'order:unpaid:a', verb: 'cancel'})}).then((answer) => answer.status)";
        let status = chrome.eval(ask).await.as_u64().unwrap();
        assert!([403, 404, 405].contains(&status), "{status}");
        chrome.go(&scene.timer("a")).await;
        chrome.shows("waiting, attempt 1").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn below_a_prefix_all_leads_there() {
    let Some(mut chrome) = Chrome::start().await else { return };
    let server = Server::start().await;
    let mut scene = Scene::before(server, |web| web.prefix("/ops/timers").unwrap(), access()).await;
    scene.at.push_str("/ops/timers");
    scene.arm(b"a", Duration::from_secs(3600), Do::Succeed).await;
    log_in(&mut chrome, &scene, TOKEN).await;
    chrome.shows("order.unpaid").await;
    let cookies = chrome.call("Network.getCookies", json!({})).await;
    assert_eq!(cookies["cookies"][0]["path"], json!("/ops/timers"));
    for path in [
        "",
        "/topics",
        "/topic?name=order.unpaid",
        "/timer?topic=order.unpaid&key=order:unpaid:a",
        "/dead",
        "/nothing",
        "/",
    ] {
        chrome.go(&scene.url(path)).await;
        let elsewhere = "[...document.querySelectorAll('[href], [src], [action], [data-source]')].map((one) => one.getAttribute('href') \
                         || one.getAttribute('src') || one.getAttribute('action') || one.dataset.source)\
                         .filter((path) => !path.startsWith('/ops/timers/') && !path.startsWith('#'))";
        assert_eq!(chrome.eval(elsewhere).await, json!([]), "{path}");
        assert_eq!(chrome.eval("document.styleSheets.length").await, json!(1), "{path}");
    }
    chrome.go(&scene.timer("a")).await;
    chrome.click("button", "Run now").await;
    chrome.shows("Due now.").await;
    chrome.press("d").await;
    chrome.shows("No dead letters").await;
    chrome.click("button", "Log out").await;
    chrome.shows("Enter a token of this server").await;
}
