//! What is read.

use std::collections::BTreeSet;
use std::future::ready;

use futures::StreamExt;
use keylapse_console::Action;

use crate::http::shop::{PAYLOAD, Shop};
use crate::http::site::Site;
use crate::http::slow::PATIENCE;
use keylapse_support::eventually;
use keylapse_web::{Access, Web};

#[tokio::test]
async fn topics_and_their_entries_are_shown_as_the_console_writes_them() {
    let shop = Shop::open().await;
    shop.bury(3).await;
    let site = Site::open(&shop.console).await;
    let status = site.get("/api/v1/status").await.with(200);
    assert_eq!(status["topics"][0]["name"], "order");
    assert_eq!(
        (status["topics"][0]["timers"].as_u64(), status["topics"][0]["dead"].as_u64()),
        (Some(1), Some(3))
    );
    assert_eq!(status["more_topics"], 0);
    let topics = site.get("/api/v1/topics?count=1").await.with(200);
    assert_eq!(
        (&topics["topics"][0]["pattern"], &topics["next"]),
        (&"order:{rest..}".into(), &serde_json::Value::Null)
    );
    assert_eq!(site.get("/api/v1/topics/order").await.with(200)["partitions"], 4);
    let letters = site.get("/api/v1/topics/order/entries?state=dead&count=2").await.with(200);
    assert_eq!(letters["entries"].as_array().map(Vec::len), Some(2));
    assert!(letters["next"].is_string() && letters["now_ms"].as_u64() > Some(1_700_000_000_000), "{letters}");
    let key = site.get("/api/v1/topics/order/timers/order:dead-1").await.with(200);
    assert_eq!(
        (&key["timer"], &key["dead_letters"][0]["reason"]),
        (&serde_json::Value::Null, &"exhausted".into())
    );
    let why = site.get("/api/v1/topics/order/timers/order:first/why").await.with(200);
    assert!(why["next"].is_string() && why["timer"]["state"] == "waiting", "{why}");
    assert_eq!(site.get("/api/v1/listeners").await.with(200)["listeners"], serde_json::json!([]));
    let doctor = site.get("/api/v1/doctor").await.with(200);
    assert!(doctor["findings"].as_array().is_some_and(|found| found.len() > 5) && doctor["errors"].is_u64());
    let check = site.get("/api/v1/check?max_dead=2&min_listeners=1").await.with(200);
    assert_eq!(check["breaches"].as_array().map(Vec::len), Some(2), "{check}");
}

#[tokio::test]
async fn a_check_finds_what_the_program_finds() {
    let shop = Shop::open().await;
    let site = Site::open(&shop.console).await;
    let kinds = async |query: &str| {
        let checked = site.get(&format!("/api/v1/check{query}")).await.with(200);
        let all = ["alarms", "breaches"].map(|list| checked[list].as_array().cloned().expect("a list"));
        all.concat()
            .iter()
            .map(|one| one["kind"].as_str().or(one["figure"].as_str()).expect("a kind").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(kinds("").await, ["unserved"], "alarms are looked for in any case");
    assert_eq!(kinds("?allow=unserved&topic=order").await, [""; 0]);
    site.post("/api/v1/topics/order/pause", &serde_json::json!({"reason": "a test"})).await.with(200);
    assert_eq!(kinds("").await, ["paused", "unserved"]);
    assert_eq!(kinds("?allow=unserved,paused&max_undelivered=0").await, [""; 0]);
    shop.topic().await.act(Action::RunNow, b"order:first", None).await.expect("a timer");
    let is_undelivered =
        async |limit| kinds(&format!("?allow=unserved&allow=paused&max_undelivered={limit}")).await;
    for (limit, breach) in [("0", "undelivered"), ("1ms", "undelivered_ms")] {
        eventually(PATIENCE, breach, async || is_undelivered(limit).await == [breach]).await;
    }
    assert_eq!((is_undelivered("1").await, is_undelivered("1h").await), (vec![], vec![]));
}

#[tokio::test]
async fn what_is_not_there_or_makes_no_sense_is_said_as_json() {
    let shop = Shop::open().await;
    let site = Site::open(&shop.console).await;
    let long = "a".repeat(300);
    let many = "filter=attempt:1&".repeat(17);
    for (path, status, words) in [
        ("/api/v1/nothing", 404, "no such route"),
        ("/api/v1/topics/orders", 404, "order"),
        ("/api/v1/status?topic=orders", 404, "no topic is called"),
        ("/api/v1/topics/order/timers/order:7", 404, "why"),
        ("/api/v1/topics/order/timers/%5Cq", 400, "backslash"),
        ("/api/v1/topics/order/timers/%FF", 400, "UTF-8"),
        ("/api/v1/topics/order/journal", 404, "no journal"),
        ("/api/v1/topics/order/journal?after=x", 400, "invalid cursor"),
        ("/api/v1/topics/order/entries?state=lost", 400, "unknown state"),
        ("/api/v1/topics/order/entries?sate=dead", 400, "unknown field `sate`"),
        ("/api/v1/topics/order/entries?count=0", 400, "1 to 250"),
        ("/api/v1/topics/order/entries?count=251", 400, "1 to 250"),
        ("/api/v1/topics/order/entries?count=many", 400, "invalid digit"),
        ("/api/v1/topics/order/entries?after=here", 400, "invalid cursor"),
        ("/api/v1/topics/order/entries?filter=colour:red", 400, "filter"),
        ("/api/v1/topics/order/entries?payload=1", 403, "--show-payloads"),
        ("/api/v1/topics/order/timers/order:first?payload=1", 403, "--show-payloads"),
        ("/api/v1/topics/order/timers/order:first?payload=yes", 400, "`0` or `1`"),
        (&format!("/api/v1/topics/order/entries?filter=key:{long}"), 400, "16 conditions"),
        (&format!("/api/v1/topics/order/entries?{many}"), 400, "16 conditions"),
        (&format!("/api/v1/topics/order/timers/{}", "a".repeat(5000)), 400, "4096"),
        ("/api/v1/check?allow=nonsense", 400, "the alarms are unreadable, closed"),
        ("/api/v1/check?max_undelivered=many", 400, "or a number of timers"),
        ("/api/v1/tail?topic=orders", 404, "no topic is called"),
    ] {
        site.get(path).await.refused(status, words);
    }
    let refused = site.ask("POST", "/api/v1/status", &[], "").await;
    refused.refused(405, "other methods");
    assert!(refused.head.contains("allow: get"), "{refused:?}");
    let typed = site.ask("POST", "/api/v1/topics/order/pause", &["Content-Type: text/plain"], "{}").await;
    typed.refused(415, "Content-Type");
    site.post("/api/v1/topics/order/pause", &serde_json::json!({})).await.refused(422, "reason");
    site.post("/api/v1/topics/order/pause", &serde_json::json!({"reason": "a", "b": 1}))
        .await
        .refused(422, "unknown field");
    let large = serde_json::json!({ "in": "1h", "payload": "a".repeat(3 << 20) });
    site.say("PUT", "/api/v1/topics/order/timers/order:7", &large).await.refused(413, "too large");
}

#[tokio::test]
async fn where_nobody_has_registered_anything_there_is_nothing_and_no_fault() {
    let server = keylapse_support::Server::start().await;
    let console = keylapse_console::Console::connect(&*server.plain_url()).await.expect("a console");
    let site = Site::open(&console).await;
    for path in ["/api/v1/status", "/api/v1/topics", "/api/v1/check?max_dead=0"] {
        assert_eq!(site.get(path).await.with(200)["topics"].as_array().map_or(0, Vec::len), 0, "{path}");
    }
    site.get("/api/v1/tail").await.refused(404, "no topic");
    site.get("/api/v1/topics/order").await.refused(404, "none is registered");
}

#[tokio::test]
async fn payloads_are_shown_where_they_may_be_and_are_asked_for() {
    let shop = Shop::open().await;
    shop.bury(1).await;
    let access = Access::to_loopback();
    let hidden = Site::open(&shop.console).await;
    let shown =
        Site::serve(Web::new(shop.console.clone(), access.clone()).show_payloads(true), &access).await;
    for path in [
        "/api/v1/topics/order/entries?state=dead",
        "/api/v1/topics/order/timers/order:first?payload=0",
        "/api/v1/topics/order/timers/order:first/why",
    ] {
        for site in [&hidden, &shown] {
            let answer = site.get(path).await;
            assert!(answer.status == 200 && !answer.body.contains(PAYLOAD), "{answer:?}");
        }
    }
    for path in [
        "/api/v1/topics/order/entries?state=dead&payload=1",
        "/api/v1/topics/order/timers/order:first?payload=1",
    ] {
        assert!(shown.get(path).await.body.contains(PAYLOAD), "{path}");
    }
}

#[tokio::test]
async fn what_has_ended_is_read_page_by_page() {
    let shop = Shop::open().await;
    let orders = shop.orders.clone().journal(100, crate::http::shop::HOUR);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let handle =
        async |_: keylapse::Lapse<String>| Ok::<keylapse::Outcome, keylapse::Failure>(keylapse::Done.into());
    let listener =
        keylapse::Listener::builder(shop.server.plain_url()).on(orders, handle).build().expect("a listener");
    let listening = tokio::spawn(async move { listener.run_until(stopped).await });
    for n in 0..5 {
        shop.arm(format!("order:{n}").as_bytes(), std::time::Duration::ZERO).await;
    }
    keylapse_support::eventually(crate::http::slow::PATIENCE, "the ends", async || shop.timers().await == 1)
        .await;
    let site = Site::open(&shop.console).await;
    let (mut after, mut keys) = (String::new(), Vec::new());
    loop {
        let page = site.get(&format!("/api/v1/topics/order/journal?count=2{after}")).await.with(200);
        keys.extend(page["entries"].as_array().expect("entries").iter().map(|one| one["key"].to_string()));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={}", crate::http::keys::encoded(next));
    }
    keys.sort_unstable();
    assert_eq!(keys, (0..5).map(|n| format!("\"order:{n}\"")).collect::<Vec<_>>());
    drop(stop);
    listening.await.expect("its task").expect("the listener");
}

/// A page that is open is asked for every five seconds: so each look has less than five requests, of those that go together one.
#[tokio::test]
async fn an_idle_dashboard_asks_redis_less_than_once_a_second() {
    let shop = Shop::open().await;
    let client = redis::Client::open(shop.server.plain_url()).expect("a client");
    for path in ["/topics", "/topic?name=order", "/destinations?topic=order", "/listeners"] {
        // The server knows the scripts.
        assert_eq!(Site::open(&shop.console).await.get(path).await.status, 200, "{path}");
        // A dashboard that has read nothing yet, so that nothing is at hand.
        let site = Site::open(&shop.console).await;
        let monitor = client.get_async_monitor().await.expect("a monitor");
        assert_eq!(site.get(path).await.status, 200, "{path}");
        shop.server.cmd(&["ECHO", "this is all"]).await;
        let lines = monitor.into_on_message::<String>();
        let lines = lines.take_while(|line| ready(!line.contains("this is all")));
        let asked = lines.filter(|line| ready(!line.contains(" lua] "))).map(|line| request(&line));
        let asked: BTreeSet<_> = asked.collect().await;
        assert!((1..5).contains(&asked.len()), "{path}: {asked:?}");
    }
}

/// The command, and its script or first key, of a line such as `1.5 [0 127.0.0.1:1] "HGET" "a" "b"`.
fn request(line: &str) -> String {
    line.split('"').skip(1).take(3).collect()
}
