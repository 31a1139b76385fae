//! What is written down of each action.

use std::io;
use std::sync::{Mutex, Once};

use keylapse_web::Web;
use serde_json::json;

use crate::http::keys::encoded;
use crate::http::shop::{HOUR, PAYLOAD, Shop};
use crate::http::site::{FORM, READ_TOKEN, Site, TOKEN, guarded};

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// What all tests here log, as `keylapse serve` writes it.
fn heard() -> String {
    String::from_utf8_lossy(&LOG.lock().expect("the log")).into_owned()
}

/// One for the whole program, whose tests tell their lines apart by their words.
pub(crate) fn hear() {
    static BEGIN: Once = Once::new();
    BEGIN.call_once(|| tracing_subscriber::fmt().with_ansi(false).with_writer(|| Log).init());
}

struct Log;

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.lock().expect("the log").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines that have these words.
pub(crate) fn lines(words: &str) -> Vec<String> {
    heard()
        .lines()
        .filter(|line| line.contains("keylapse::audit") && line.contains(words))
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn each_action_is_written_down_with_who_what_and_how_many() {
    hear();
    let shop = Shop::open().await;
    shop.bury(3).await;
    let access = guarded();
    let site = Site::serve(Web::new(shop.console.clone(), access.clone()), &access).await;
    let act = async |method: &str, path: &str, body: serde_json::Value| {
        let head = [&*format!("Authorization: Bearer {TOKEN}"), "Content-Type: application/json"];
        site.ask(method, &format!("/api/v1/topics/order{path}"), &head, &body.to_string()).await
    };
    let evil = encoded("order:audit\nkeylapse-audit verb=\"drop\"\u{1b}[31m");
    act("PUT", &format!("/timers/{evil}"), json!({"in": "1h", "payload": PAYLOAD})).await.with(201);
    act("DELETE", "/timers/order:audit-none", json!({})).await.with(404);
    act("POST", "/pause", json!({"reason": "audit \u{1b}[2J\nby nobody"})).await.with(200);
    act("POST", "/bulk", json!({"action": "drop", "filters": ["reason:exhausted"], "expect": 3}))
        .await
        .with(200);
    act("POST", "/bulk", json!({"action": "drop", "filters": ["key:audit-unexpected"], "expect": 3}))
        .await
        .with(409);
    for (words, all) in [
        (
            r"order:audit\\nkeylapse",
            vec![r#"verb="arm""#, r#"outcome="armed""#, "count=1", r#"by="token""#, "127.0.0.1:"],
        ),
        ("order:audit-none", vec![r#"verb="cancel""#, r#"outcome="not_armed""#, "count=0"]),
        ("by nobody", vec![r#"verb="pause""#, r#"topic="order""#]),
        ("dead reason:exhausted", vec![r#"verb="drop""#, "done=3", "count=3"]),
    ] {
        let [line] = &lines(words)[..] else { panic!("{words}: {:?}", lines(words)) };
        all.iter().for_each(|part| assert!(line.contains(part), "{part} in {line}"));
    }
    assert_eq!(lines("audit-unexpected"), Vec::<String>::new());
    let all = heard();
    for secret in [PAYLOAD, TOKEN, READ_TOKEN, "\u{1b}"] {
        assert!(!all.contains(secret), "{secret:?} is in the log");
    }
}

#[tokio::test]
async fn an_action_without_an_answer_is_written_down_too() {
    hear();
    let mut shop = Shop::open().await;
    let access = guarded();
    let site = Site::serve(Web::new(shop.console.clone(), access.clone()), &access).await;
    let head = [&*format!("Authorization: Bearer {TOKEN}"), "Content-Type: application/json"];
    // The topic is known, and then the server is gone: for the next requests the topic cannot be read.
    shop.server.kill().await;
    let refused = site
        .ask(
            "PUT",
            "/api/v1/topics/order/timers/order:audit-lost",
            &head,
            r#"{"in": "1h", "payload": "secret-17"}"#,
        )
        .await;
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(!refused.body.contains("secret-17") && !heard().contains("secret-17"));
}

#[tokio::test]
async fn what_is_done_from_a_page_is_written_down_in_the_same_way() {
    hear();
    let shop = Shop::open().await;
    shop.arm(b"order:from-a-page", HOUR).await;
    shop.bury(3).await;
    let access = guarded();
    let site = Site::serve(Web::new(shop.console.clone(), access.clone()), &access).await;
    let head = [&*format!("Authorization: Bearer {TOKEN}"), FORM];
    for (path, form) in [
        ("/timer/act", "topic=order&key=order:from-a-page&verb=run-now"),
        ("/timer/act", "topic=order&key=order:not-of-a-page&verb=cancel"),
        ("/topic/act", "topic=order&verb=pause&reason=by+a+page%0Aand+nobody"),
        ("/topic/bulk", "name=order&state=dead&filter=error:~shop&verb=drop&expect=3"),
    ] {
        let answer = site.ask("POST", path, &head, form).await;
        assert_eq!(answer.status, 303, "{answer:?}");
    }
    for (words, all) in [
        ("order:from-a-page", vec![r#"verb="run-now""#, r#"outcome="due_now""#, "count=1", r#"by="token""#]),
        ("order:not-of-a-page", vec![r#"verb="cancel""#, r#"outcome="not_armed""#, "count=0"]),
        ("by a page", vec![r#"verb="pause""#, r#"topic="order""#, "count=1"]),
        ("dead error:~shop", vec![r#"verb="drop""#, "done=3", "count=3"]),
    ] {
        let [line] = &lines(words)[..] else { panic!("{words}: {:?}", lines(words)) };
        all.iter().for_each(|part| assert!(line.contains(part), "{part} in {line}"));
    }
}
