//! Payloads as they were written: into Redis, and to those who look.

use keylapse_console::text;
use keylapse_web::{Access, Web};

use crate::http::keys::encoded;
use crate::http::shop::Shop;
use crate::http::site::Site;

/// JSON that a parser would write otherwise.
const PAYLOADS: [&str; 9] = [
    "1234567890123456789012345",
    r#"{"amount":100000000000000000.01}"#,
    "1.10",
    "1e400",
    r#"{"b":1,"a":2,"b":3}"#,
    "{\"a\" :\t1}",
    r#""\ud800\/""#,
    "\"gr\u{f6}\u{df}e\"",
    "null",
];

#[tokio::test]
async fn what_is_armed_over_http_lies_in_redis_as_the_request_has_it() {
    let shop = Shop::open().await;
    let access = Access::to_loopback();
    let site = Site::serve(Web::new(shop.console.clone(), access.clone()).show_payloads(true), &access).await;
    let deep = "[".repeat(1000) + &"]".repeat(1000);
    for (number, payload) in PAYLOADS.into_iter().chain([&*deep]).enumerate() {
        let key = format!("order:{number}");
        let path = format!("/api/v1/topics/order/timers/{}", encoded(&key));
        let body = format!("{{\"payload\": {payload} , \"in\": \"1h\"}}");
        site.ask("PUT", &path, &["Content-Type: application/json"], &body).await.with(201);
        let timer = shop.topic().await.timer(key.as_bytes(), Some(4096)).await.expect("a look");
        let kept = timer.expect("a timer").payload.expect("its payload");
        assert_eq!(kept, payload.as_bytes());

        let shown = text::escape(payload.as_bytes());
        assert_eq!(site.get(&format!("{path}?payload=1")).await.with(200)["timer"]["payload"], *shown);
        let page = site.get(&format!("/timer?topic=order&key={}", encoded(&key))).await.body;
        let (_, rest) = page.split_once("aria-label=\"Payload\" tabindex=\"0\">").expect("the payload");
        let (told, _) = rest.split_once("</pre>").expect("its end");
        assert_eq!(told.replace("&#34;", "\"").replace("&quot;", "\""), shown);
    }
    let entries = site.get("/api/v1/topics/order/entries?payload=1&count=100").await.with(200);
    for payload in PAYLOADS {
        assert!(
            entries.to_string().contains(&serde_json::json!(text::escape(payload.as_bytes())).to_string())
        );
    }
}
