//! Many at a time: as a program does it that knows nothing but HTTP.

use keylapse_support::eventually;
use serde_json::{Value, json};

use crate::http::keys::encoded;
use crate::http::shop::Shop;
use crate::http::site::{FORM, Site};
use crate::http::slow::PATIENCE;

const BULK: &str = "/api/v1/topics/order/bulk";

/// Ten thousand timers are paged, filtered and cancelled; letters are replayed and dropped.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_are_paged_filtered_and_acted_upon() {
    let shop = Shop::open().await;
    shop.arm_many(10_000).await;
    shop.bury(1000).await;
    let site = Site::open(&shop.console).await;
    let mut keys = all(&site, "state=waiting&count=250").await;
    assert_eq!(keys.len(), 10_001);
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 10_001, "each once");
    assert_eq!(all(&site, "count=250&filter=key%3Aorder%3A77*&filter=attempt%3A1").await.len(), 111);

    let cancel = json!({"action": "cancel", "filters": ["key:order:77*"]});
    assert_eq!(site.post(BULK, &with(&cancel, &json!({"dry_run": true}))).await.with(200)["matched"], 111);
    site.post(BULK, &with(&cancel, &json!({"expect": 110})))
        .await
        .refused(409, "111 found, 110 expected: nothing was done");
    site.post(BULK, &cancel).await.refused(400, "expect");
    assert_eq!(shop.timers().await, 10_001);
    let done = site.post(BULK, &with(&cancel, &json!({"expect": 111}))).await.with(200);
    assert_eq!((&done["done"], &done["outcomes"]), (&111.into(), &json!({"cancelled": 111})));
    assert_eq!(shop.timers().await, 9890);

    let replay = json!({"action": "replay", "filters": ["error:~timeout"], "limit": 300});
    let mut cursor = Value::Null;
    let mut replayed = 0;
    for expected in [300, 200] {
        let portion = with(&replay, &json!({"expect": expected, "after": cursor}));
        let report = site.post(BULK, &portion).await.with(200);
        replayed += report["done"].as_u64().expect("a count");
        cursor = report["cursor"].clone();
    }
    assert_eq!((replayed, shop.dead().await, shop.timers().await), (500, 500, 10_390));
    let drop = site.post(BULK, &json!({"action": "drop", "expect": 500})).await.with(200);
    assert_eq!((&drop["done"], shop.dead().await), (&500.into(), 0));
    let none = site.post(BULK, &json!({"action": "drop", "expect": 0})).await.with(200);
    assert_eq!(none["matched"], 0);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused() {
    let shop = Shop::open().await;
    let site = Site::open(&shop.console).await;
    for (body, status, words) in [
        (json!({"action": "burn"}), 422, "unknown action burn: the actions are run-now, reschedule,"),
        (json!({"action": "cancel", "limit": 10_001, "dry_run": true}), 400, "1 to 10000"),
        (
            json!({"action": "cancel", "state": "dead", "dry_run": true}),
            400,
            "does not apply to entries that are dead",
        ),
        (json!({"action": "reschedule", "dry_run": true}), 400, "exactly one of"),
        (json!({"action": "cancel", "in": "1h", "dry_run": true}), 400, "reschedule"),
        (json!({"action": "cancel", "filters": ["attempt:>x"], "dry_run": true}), 400, "write a number"),
        (json!({"action": "cancel", "after": "there", "dry_run": true}), 400, "invalid cursor"),
        (json!({"action": "cancel", "yes": true}), 422, "unknown field"),
    ] {
        site.post(BULK, &body).await.refused(status, words);
    }
}

/// The keys of all pages.
async fn all(site: &Site, query: &str) -> Vec<String> {
    let (mut keys, mut after) = (Vec::new(), String::new());
    loop {
        let page = site.get(&format!("/api/v1/topics/order/entries?{query}{after}")).await.with(200);
        keys.extend(
            page["entries"].as_array().expect("entries").iter().map(|entry| entry["key"].to_string()),
        );
        let Some(next) = page["next"].as_str() else { return keys };
        after = format!("&after={}", encoded(next));
    }
}

fn with(one: &Value, more: &Value) -> Value {
    let fields = one.as_object().into_iter().chain(more.as_object()).flatten();
    Value::Object(fields.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// The server is lost while a page's action runs: the page says what was done.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_tells_of_an_end_that_came_early() {
    let mut shop = Shop::open().await;
    shop.arm_many(9999).await;
    let site = Site::open(&shop.console).await;
    let cancel =
        site.ask("POST", "/topic/bulk", &[FORM], "name=order&state=waiting&verb=cancel&expect=10000");
    let lose = async {
        let begun = async || shop.timers().await < 10_000;
        eventually(PATIENCE, "the first to be cancelled", begun).await;
        shop.server.kill().await;
    };
    let (answer, ()) = tokio::join!(cancel, lose);
    assert_eq!(answer.status, 502, "{answer:?}");
    for words in
        ["The connection to Redis was lost. Changes made until then remain.", "matched=", "127.0.0.1"]
    {
        assert!(answer.body.contains(words), "{words} in {}", answer.body);
    }
}
