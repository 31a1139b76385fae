//! Keys of any bytes, in paths.

use keylapse_console::text;
use serde_json::json;

use crate::http::shop::Shop;
use crate::http::site::Site;

/// All but letters and digits.
pub(crate) fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte.is_ascii_alphanumeric() {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[tokio::test]
async fn each_key_is_armed_shown_and_cancelled_by_its_path() {
    let shop = Shop::open().await;
    let site = Site::open(&shop.console).await;
    let keys: [&[u8]; 12] = [
        b"order:7",
        b"order:a/b",
        b"order:/",
        b"order:a b",
        b"order:%2F",
        b"order:..",
        b"order:a?b=c#d",
        "order:größe-日本".as_bytes(),
        b"order:\xff\x00\xfe",
        b"order:a\\nb",
        b"order:\n\x1b[31m\r\n",
        b"order:<script>alert(1)</script>\"'&",
    ];
    for key in keys {
        let shown = text::escape(key);
        let path = format!("/api/v1/topics/order/timers/{}", encoded(&shown));
        let armed = site.say("PUT", &path, &json!({"in": "1h", "payload": {"a": 1}})).await.with(201);
        assert_eq!((armed["key"].as_str(), &armed["outcome"]), (Some(&*shown), &"armed".into()));
        assert!(shop.topic().await.timer(key, None).await.expect("a look").is_some(), "{shown}");
        assert_eq!(site.get(&path).await.with(200)["timer"]["key"], *shown);
        assert_eq!(site.ask("DELETE", &path, &[], "").await.with(200)["outcome"], "cancelled");
        assert_eq!(site.ask("DELETE", &path, &[], "").await.with(404)["outcome"], "not_armed");
    }
    // What is not ASCII may also be written as it is.
    let raw = format!("/api/v1/topics/order/timers/{}", encoded("order:größe"));
    assert_eq!(
        site.say("PUT", &raw, &json!({"in": "1h"})).await.with(201)["key"],
        "order:gr\\xc3\\xb6\\xc3\\x9fe"
    );
}

#[tokio::test]
async fn a_path_says_what_it_says_and_no_more() {
    let shop = Shop::open().await;
    let site = Site::open(&shop.console).await;
    for path in [
        "/api/v1/topics/order/timers/a/b",
        "/api/v1/topics/order/timers/",
        "/api/v1/topics/../../livez",
        "/api/v1/topics/order/timers/../entries",
        "//api/v1/status",
        "/api//v1/status",
        "/API/v1/status",
    ] {
        let answer = site.get(path).await;
        assert_eq!(answer.status, 404, "{path}: {answer:?}");
    }
    site.get("/api/v1/topics/..%2f..%2flivez").await.refused(404, "no topic is called");
}
