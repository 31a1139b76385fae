//! Redis goes, and comes back.

use std::time::{Duration, Instant};

use futures::future::join_all;
use keylapse::Client;
use keylapse_console::Console;
use keylapse_support::eventually;
use serde_json::json;

use crate::http::shop::Shop;
use crate::http::site::Site;
use crate::http::slow::PATIENCE;

const LOOKING: [&str; 9] = [
    "/api/v1/status",
    "/api/v1/topics",
    "/api/v1/topics/order",
    "/api/v1/topics/order/entries?state=dead",
    "/api/v1/topics/order/timers/order:first",
    "/api/v1/topics/order/timers/order:first/why",
    "/api/v1/listeners",
    "/api/v1/check?max_dead=1",
    "/api/v1/tail",
];

#[tokio::test]
async fn each_route_says_that_redis_is_gone_and_works_once_it_is_back() {
    let mut shop = Shop::open().await;
    let site = Site::open(&shop.console).await;
    assert_eq!(site.get(LOOKING[0]).await.status, 200);
    shop.server.kill().await;
    for path in LOOKING.into_iter().chain(["/api/v1/topics/order/journal"]) {
        let began = Instant::now();
        site.get(path).await.refused(503, "127.0.0.1");
        assert!(began.elapsed() < Duration::from_secs(3), "{path}: {:?}", began.elapsed());
    }
    let arm = json!({"in": "1h"});
    site.say("PUT", "/api/v1/topics/order/timers/order:first", &arm).await.refused(503, "127.0.0.1");
    site.post("/api/v1/topics/order/bulk", &json!({"action": "drop", "expect": 1}))
        .await
        .refused(503, "127.0.0.1");
    let ready = site.get("/readyz").await;
    assert!(ready.status == 503 && ready.json()["ready"] == false, "{ready:?}");
    assert_eq!(site.get("/livez").await.status, 200);
    let doctor = site.get("/api/v1/doctor").await.with(200);
    assert!(doctor["errors"].as_u64() > Some(0), "a server that is away is a finding: {doctor}");
    shop.server.restart().await;
    eventually(PATIENCE, "an answer", async || site.get("/api/v1/status").await.status == 200).await;
    for path in ["/api/v1/listeners", "/api/v1/topics"] {
        assert_eq!(site.get(path).await.status, 200, "{path}");
    }
    eventually(PATIENCE, "that it is ready", async || site.get("/readyz").await.status == 200).await;
}

#[tokio::test]
async fn a_server_that_hangs_is_waited_for_in_bounds() {
    let shop = Shop::open().await;
    let client = Client::new(&shop.server.plain_url()).expect("a client");
    let client = client
        .answer_within(Duration::from_millis(200))
        .expect("a span")
        .retry_for(Duration::from_millis(200));
    let site = Site::open(&Console::new(client)).await;
    assert_eq!(site.get(LOOKING[0]).await.status, 200);
    shop.server.stop();
    let began = Instant::now();
    for answer in join_all(LOOKING.map(|path| site.get(path))).await {
        assert_eq!(answer.status, 503, "{answer:?}");
    }
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
    assert!(site.get("/metrics").await.body.contains("keylapse_redis_up 0\n"));
    assert_eq!(site.get("/livez").await.status, 200);
    shop.server.cont();
    eventually(PATIENCE, "an answer", async || site.get(LOOKING[0]).await.status == 200).await;
}

#[tokio::test]
async fn probes_and_metrics_say_within_a_second_that_redis_refuses_or_hangs() {
    let shop = Shop::open().await;
    let patient = |url: &str| Client::new(url).expect("a client").retry_for(Duration::from_secs(5));
    let refuses = Site::open(&Console::new(patient("redis://127.0.0.1:1/"))).await;
    let hangs = Site::open(&Console::new(patient(&shop.server.plain_url()))).await;
    let soon = async |site: &Site, path: &str| {
        let began = Instant::now();
        let answer = site.get(path).await;
        assert!(began.elapsed() < Duration::from_secs(1), "{path}: {:?}", began.elapsed());
        answer
    };
    assert_eq!(hangs.get("/readyz").await.status, 200);
    shop.server.stop();
    for site in [refuses, hangs] {
        eventually(PATIENCE, "that it is not ready", async || soon(&site, "/readyz").await.status == 503)
            .await;
        eventually(PATIENCE, "that it is gone", async || {
            soon(&site, "/metrics").await.body.contains("keylapse_redis_up 0\n")
        })
        .await;
        assert_eq!(soon(&site, "/livez").await.status, 200);
    }
    shop.server.cont();
}
