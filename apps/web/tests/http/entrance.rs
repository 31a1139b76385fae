//! Who comes in: by which name, with which token, sent by which page.

use keylapse_web::{Access, Certificate, ServeError, Web, WebServer};

use crate::http::site::{READ_TOKEN, Site, TOKEN, guarded, nowhere};

async fn site(access: &Access) -> Site {
    Site::serve(Web::new(nowhere(), access.clone()), access).await
}

#[tokio::test]
async fn a_request_calls_the_server_by_one_of_its_names_or_is_refused_first() {
    let site = site(&guarded()).await;
    for (host, line) in [
        ("Host: evil.com", "/livez"),
        ("Host: evil.com:80", "/livez"),
        ("Host: localhost.evil.com", "/livez"),
        ("Host: evil.com", "/no/such/route"),
        ("Host: evil.com", "http://localhost/livez"),
        ("Host: localhost", "http://evil.com/livez"),
        ("Host: localhost\r\nHost: evil.com", "/livez"),
        ("Host: localhost\r\nHost: localhost", "/livez"),
        ("Host: localhost, evil.com", "/livez"),
        ("Host: ", "/livez"),
        ("Host: \u{e9}vil", "/livez"),
        ("X-Forwarded-Host: localhost", "/livez"),
    ] {
        let answer = site.send(format!("GET {line} HTTP/1.1\r\n{host}\r\nConnection: close\r\n\r\n")).await;
        assert_eq!(answer.expect("an answer").status, 421, "{host} {line}");
    }
    let old = site.send("GET /livez HTTP/1.0\r\n\r\n").await.expect("an answer");
    assert_eq!(old.status, 421);
    // It is the first thing that is looked at.
    let token = format!("Authorization: Bearer {TOKEN}");
    let cross = format!(
        "PUT /api/v1/topics/a/timers/b HTTP/1.1\r\nHost: evil.com\r\n{token}\r\nOrigin: http://evil.com\r\nConnection: close\r\n\r\n"
    );
    site.send(cross).await.expect("an answer").refused(421, "unknown host name");
    for host in ["localhost", "LOCALHOST:7117", "127.0.0.1", "[::1]:80"] {
        let answer =
            site.send(format!("GET /livez HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")).await;
        assert_eq!(answer.expect("an answer").status, 200, "{host}");
    }
}

#[tokio::test]
async fn nobody_comes_in_without_a_token() {
    let site = site(&guarded()).await;
    let huge = format!("Authorization: Bearer {}", "a".repeat(50_000));
    let padded = format!("Authorization: Bearer {TOKEN}0");
    let basic = format!("Authorization: Basic {TOKEN}");
    let cut = format!("Authorization: Bearer {}", &TOKEN[1..]);
    let both = format!("Authorization: Bearer wrong\r\nCookie: keylapse={TOKEN}");
    let port = site.address.port();
    let cookies =
        ["", TOKEN, "9999999999.AAAA", &format!("9999999999.{}.{}", "A".repeat(22), "A".repeat(43))]
            .map(|value| format!("Cookie: keylapse-{port}={value}"));
    for head in [
        "X: y",
        "Authorization:",
        "Authorization: Bearer",
        "Authorization: Bearer ",
        "Authorization: Bearer x",
        &huge,
        &padded,
        &basic,
        &cut,
        &both,
    ]
    .into_iter()
    .chain(cookies.iter().map(String::as_str))
    {
        for path in ["/api/v1/status", "/metrics", "/api/v1/no-such-route", "/no-such-page"] {
            let answer = site.ask("GET", path, &[head], "").await;
            answer.refused(401, "a token is needed");
            assert!(answer.head.contains("www-authenticate: bearer"), "{answer:?}");
        }
    }
    for path in ["/livez", "/readyz"] {
        assert_ne!(site.get(path).await.status, 401, "{path} is for probes");
    }
    assert_eq!(
        site.ask("GET", "/api/v1/no-such-route", &[&format!("authorization: bearer {TOKEN}")], "")
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn a_token_that_may_only_look_does_not_act() {
    let site = site(&guarded()).await;
    let head = format!("Authorization: Bearer {READ_TOKEN}");
    for (method, path) in acting() {
        let answer = site.ask(method, path, &[&head, "Content-Type: application/json"], "{}").await;
        answer.refused(403, "may only read");
    }
    // It gets as far as Redis, which is not there.
    assert_eq!(site.ask("GET", "/api/v1/status", &[&head], "").await.status, 503);
}

#[tokio::test]
async fn what_is_read_only_has_no_route_that_acts() {
    let access = guarded();
    let site = Site::serve(Web::new(nowhere(), access.clone()).read_only(true), &access).await;
    let head = format!("Authorization: Bearer {TOKEN}");
    for (method, path) in acting() {
        let answer = site.ask(method, path, &[&head, "Content-Type: application/json"], "{}").await;
        assert!([404, 405].contains(&answer.status), "{method} {path}: {answer:?}");
        answer.refused(answer.status, "read-only");
    }
}

#[tokio::test]
async fn what_is_for_arming_arms_and_cancels_and_has_nothing_else() {
    let access = guarded();
    let site = Site::serve(Web::new(nowhere(), access.clone()).arming_only(), &access).await;
    let head = format!("Authorization: Bearer {TOKEN}");
    let arm = site
        .ask(
            "PUT",
            "/api/v1/topics/a/timers/b",
            &[&head, "Content-Type: application/json"],
            r#"{"in": "1h"}"#,
        )
        .await;
    assert_eq!(arm.status, 503, "it gets as far as Redis: {arm:?}");
    for (method, path) in
        acting().into_iter().skip(2).chain([("GET", "/api/v1/status"), ("GET", "/api/v1/topics/a/timers/b")])
    {
        let answer = site.ask(method, path, &[&head, "Content-Type: application/json"], "{}").await;
        assert!([404, 405].contains(&answer.status), "{method} {path}: {answer:?}");
    }
    assert_eq!(site.ask("GET", "/metrics", &[&head], "").await.status, 200);
}

#[tokio::test]
async fn no_page_elsewhere_makes_a_browser_act() {
    let access = Access::to_loopback();
    let site = site(&access).await;
    for sent in [
        &["Origin: http://evil.com"][..],
        &["Origin: null"],
        &["Origin: http://localhost.evil.com"],
        &["Sec-Fetch-Site: cross-site"],
        &["Sec-Fetch-Site: same-site", "Origin: http://localhost:1"],
    ] {
        for (method, path) in acting() {
            let head = [sent, &["Content-Type: application/json"]].concat();
            site.ask(method, path, &head, "{}").await.refused(403, "another site");
        }
    }
    // What a form can send without asking is not read as JSON.
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a"] {
        let head = format!("Content-Type: {kind}");
        let answer = site.ask("POST", "/api/v1/topics/a/pause", &[&head], r#"{"reason": "a"}"#).await;
        answer.refused(415, "Content-Type");
    }
    // A program says nothing of the kind, and a page of this server the truth.
    for sent in ["X: y", "Sec-Fetch-Site: same-origin"] {
        let head = ["Content-Type: application/json", sent];
        assert_eq!(
            site.ask("POST", "/api/v1/topics/a/pause", &head, r#"{"reason": "a"}"#).await.status,
            503,
            "{sent}"
        );
    }
}

#[tokio::test]
async fn every_answer_tells_browsers_what_not_to_do() {
    let site = site(&guarded()).await;
    for path in ["/livez", "/api/v1/status", "/no-such-page", "/metrics"] {
        let head = site.get(path).await.head;
        for line in [
            "content-security-policy: default-src 'none'",
            "frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "cache-control: no-store",
            "x-frame-options: deny",
            "cross-origin-resource-policy: same-origin",
        ] {
            assert!(head.contains(line), "{path}: {line} in {head}");
        }
    }
    let foreign =
        site.send("GET / HTTP/1.1\r\nHost: evil.com\r\nConnection: close\r\n\r\n").await.expect("an answer");
    assert!(foreign.head.contains("nosniff"), "{foreign:?}");
}

#[tokio::test]
async fn below_a_prefix_all_is_as_it_is_without() {
    let access = guarded();
    let web = Web::new(nowhere(), access.clone()).prefix("/timers").expect("a prefix");
    let site = Site::serve(web, &access).await;
    let head = format!("Authorization: Bearer {TOKEN}");
    assert_eq!(site.get("/timers/livez").await.status, 200);
    site.ask("GET", "/timers/api/v1/no-such-route", &[&head], "").await.refused(404, "no such route");
    site.get("/timers/api/v1/no-such-route").await.refused(401, "a token");
    site.ask("GET", "/timers/api/v1/status", &[&head, "Host: evil.com"], "")
        .await
        .refused(421, "unknown host name");
}

#[tokio::test]
async fn beyond_this_machine_nothing_is_served_to_those_without_a_token() {
    let everywhere = "0.0.0.0:0".parse().expect("an address");
    let refused = WebServer::bind(everywhere, &Access::to_loopback(), None).await.expect_err("a refusal");
    assert!(
        matches!(refused, ServeError::TokenRequired(_)) && refused.to_string().contains("--token-file"),
        "{refused}"
    );
    assert!(WebServer::bind(everywhere, &guarded(), None::<Certificate>).await.is_ok());
}

/// The routes that act; those that arm and cancel come first.
fn acting() -> [(&'static str, &'static str); 9] {
    [
        ("PUT", "/api/v1/topics/a/timers/b"),
        ("DELETE", "/api/v1/topics/a/timers/b"),
        ("POST", "/api/v1/topics/a/timers/b/reschedule"),
        ("POST", "/api/v1/topics/a/timers/b/run-now"),
        ("POST", "/api/v1/topics/a/dead-letters/b/c/replay"),
        ("DELETE", "/api/v1/topics/a/dead-letters/b/c"),
        ("POST", "/api/v1/topics/a/bulk"),
        ("POST", "/api/v1/topics/a/pause"),
        ("POST", "/api/v1/topics/a/resume"),
    ]
}
