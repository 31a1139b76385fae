//! Clients who say what they want slowly, or never, and who do not read their answers.

use std::time::{Duration, Instant};

use keylapse_web::{Access, ServerLimits, Web};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::http::answer::Answer;
use crate::http::shop::Shop;
use crate::http::site::{Site, nowhere, read};

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// How long the servers here wait for their clients.
const SHORT: Duration = Duration::from_millis(300);

async fn hasty() -> Site {
    let patience = ServerLimits::default()
        .header_timeout(SHORT)
        .body_timeout(SHORT)
        .write_timeout(SHORT)
        .request_timeout(4 * SHORT);
    let access = Access::to_loopback();
    Site::patient(Web::new(nowhere(), access.clone()), &access, patience, None).await
}

/// What comes until the server closes the connection.
async fn closed(stream: &mut TcpStream) -> Option<Answer> {
    let mut bytes = Vec::new();
    _ = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("it is closed");
    Answer::read(&bytes)
}

/// Writes one byte after the other, until nobody takes them.
async fn drip(stream: TcpStream, bytes: &'static [u8]) -> (Duration, Option<Answer>) {
    let (mut reader, mut writer) = stream.into_split();
    let began = Instant::now();
    let dripping = tokio::spawn(async move {
        for byte in bytes.iter().cycle() {
            if writer.write_all(&[*byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(SHORT / 10).await;
        }
    });
    let mut answer = Vec::new();
    _ = timeout(PATIENCE, reader.read_to_end(&mut answer)).await.expect("it is closed");
    dripping.abort();
    (began.elapsed(), Answer::read(&answer))
}

#[tokio::test]
async fn one_who_says_nothing_or_too_little_is_left() {
    let site = hasty().await;
    for said in ["", "GET /livez HTTP/1.1\r\nHost: loc"] {
        let mut stream = site.connect().await;
        stream.write_all(said.as_bytes()).await.expect("a beginning");
        assert!(closed(&mut stream).await.is_none_or(|answer| answer.status == 408), "{said}");
    }
}

#[tokio::test]
async fn a_head_that_comes_byte_by_byte_does_not_get_more_time() {
    let site = hasty().await;
    let (took, answer) = drip(site.connect().await, b"X: y\r\n").await;
    assert!(answer.is_none_or(|answer| answer.status >= 400));
    assert!(took < PATIENCE / 2, "{took:?}");
}

#[tokio::test]
async fn a_body_that_comes_byte_by_byte_is_not_waited_for_for_ever() {
    let site = hasty().await;
    let head = "PUT /api/v1/topics/a/timers/b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n";
    let mut stream = site.connect().await;
    stream.write_all(head.as_bytes()).await.expect("a head");
    let (took, answer) = drip(stream, b" ").await;
    answer.expect("an answer").refused(503, "too long");
    assert!(took < PATIENCE / 2, "{took:?}");
    // And one that does not come at all, for less long.
    let mut stream = site.connect().await;
    stream.write_all(head.as_bytes()).await.expect("a head");
    let answer = closed(&mut stream).await.expect("an answer");
    assert!((400..504).contains(&answer.status), "{answer:?}");
}

/// An answer of megabytes, of which nothing is read.
#[tokio::test]
async fn an_answer_that_nobody_reads_is_not_held_for_ever() {
    let shop = Shop::open().await;
    let access = Access::to_loopback();
    let web = Web::new(shop.console.clone(), access.clone()).process_metrics(|| "a".repeat(64 << 20));
    let patience = ServerLimits::default().write_timeout(SHORT).connections(1);
    let site = Site::patient(web, &access, patience, None).await;
    let mut deaf = site.connect().await;
    deaf.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("a request");
    let began = Instant::now();
    // There is one place, which the other has for as long as the server writes to it.
    assert_eq!(site.get("/livez").await.status, 200);
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
    drop(deaf);
}

#[tokio::test]
async fn requests_in_a_row_are_answered_in_a_row() {
    let site = hasty().await;
    let one = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(99);
    let mut stream = site.connect().await;
    let last = "GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(format!("{one}{last}").as_bytes()).await.expect("requests");
    let mut all = String::new();
    stream.read_to_string(&mut all).await.expect("answers");
    assert_eq!(all.matches("HTTP/1.1 200 OK").count(), 100);
    // A second request behind a body whose length is said in two ways is no request.
    let smuggled = "POST /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut stream = site.connect().await;
    stream.write_all(smuggled.as_bytes()).await.expect("a request");
    let answer = read(stream).await;
    assert!(answer.as_ref().is_none_or(|answer| answer.status >= 400), "{answer:?}");
}

#[tokio::test]
async fn what_is_too_large_is_refused_before_it_is_read() {
    let site = hasty().await;
    let bomb = "X: y\r\n".repeat(200);
    let wide = format!("X: {}\r\n", "y".repeat(1 << 20));
    let path = "a".repeat(1 << 20);
    for request in [
        format!("GET /livez HTTP/1.1\r\nHost: localhost\r\n{bomb}\r\n"),
        format!("GET /livez HTTP/1.1\r\nHost: localhost\r\n{wide}\r\n"),
        format!("GET /{path} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        "\0\0\0\0".repeat(1 << 18),
    ] {
        let answer = site.send(&request).await;
        assert!(answer.is_none_or(|answer| (400..500).contains(&answer.status)));
    }
    let head = "PUT /api/v1/topics/a/timers/b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n";
    site.send(head).await.expect("an answer").refused(413, "too large");
    assert_eq!(site.get("/livez").await.status, 200);
}
