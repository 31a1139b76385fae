//! Each request beside a million timers and a hundred thousand letters.

use std::time::{Duration, Instant};

use futures::future::join_all;
use keylapse_web::{Access, ServerLimits, Web};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::http::answer::Answer;
use crate::http::shop::Shop;
use crate::http::site::Site;

const TIMERS: u32 = 1_000_000;
const LETTERS: u32 = 100_000;
/// What takes the server longer than this stands in its slow log.
const SLOW_US: &str = "5000";
/// Nobody waits for longer for what is read.
const LIMIT: Duration = Duration::from_millis(200);

/// Prints how long each took, and what the server found slow.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it takes minutes and a gigabyte: make test-more SUITE=operate-scale"]
async fn no_request_is_slow_however_much_there_is() {
    let shop = Shop::open().await;
    shop.arm_many(TIMERS).await;
    shop.bury(LETTERS).await;
    shop.server.cmd(&["CONFIG", "SET", "slowlog-log-slower-than", SLOW_US]).await;
    let site = Site::open(&shop.console).await;
    let of_topic = "/api/v1/topics/order";
    for path in [
        "/api/v1/status",
        "/api/v1/topics",
        of_topic,
        &format!("{of_topic}/entries"),
        &format!("{of_topic}/entries?count=250"),
        &format!("{of_topic}/entries?state=running"),
        &format!("{of_topic}/entries?state=dead&count=250"),
        &format!("{of_topic}/entries?filter=key:order:77*&count=250"),
        &format!("{of_topic}/entries?state=dead&filter=error:~nothing"),
        &format!("{of_topic}/timers/order:777"),
        &format!("{of_topic}/timers/order:777/why"),
        &format!("{of_topic}/timers/order:dead-777"),
        &format!("{of_topic}/timers/order:dead-777/why"),
        "/api/v1/listeners",
        "/api/v1/check?max_dead=1",
        "/api/v1/doctor",
        "/metrics",
        "/readyz",
    ] {
        let (answer, took) = timed(&shop, path, site.get(path)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(took < LIMIT, "{path}: {took:?}");
    }
    let bulk = format!("{of_topic}/bulk");
    let replay = json!({"action": "replay", "limit": 10_000, "expect": 10_000});
    let (answer, _) = timed(&shop, "replay 10,000", site.post(&bulk, &replay)).await;
    assert_eq!(answer.with(200)["done"], 10_000);
}

async fn timed(shop: &Shop, what: &str, request: impl Future<Output = Answer>) -> (Answer, Duration) {
    shop.server.cmd(&["SLOWLOG", "RESET"]).await;
    shop.server.cmd(&["CONFIG", "RESETSTAT"]).await;
    let began = Instant::now();
    let answer = request.await;
    let took = began.elapsed();
    let (slow, steps) = (slow(shop).await, steps(shop).await);
    println!("{:>6.1} ms  {steps:>5} steps, {slow} slow  {what}", took.as_secs_f64() * 1000.0);
    // Now and then the machine itself takes some milliseconds, of whatever runs: two steps in a thousand are no finding.
    assert!(
        slow <= steps / 500,
        "{what}: {slow} of {steps}: {:?}",
        shop.server.cmd(&["SLOWLOG", "GET", "-1"]).await
    );
    (answer, took)
}

async fn slow(shop: &Shop) -> usize {
    redis::from_redis_value(shop.server.cmd(&["SLOWLOG", "LEN"]).await).expect("a count")
}

/// How many calls of scripts there were.
async fn steps(shop: &Shop) -> usize {
    let stats = shop.server.cmd(&["INFO", "commandstats"]).await;
    let stats: String = redis::from_redis_value(stats).expect("statistics");
    let calls = stats.lines().filter_map(|line| {
        line.strip_prefix("cmdstat_evalsha")?.split("calls=").nth(1)?.split(',').next()?.parse::<usize>().ok()
    });
    calls.sum()
}

/// All places of the tail are taken, and a million more are asked for.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it takes a minute: make test-more SUITE=operate-scale"]
async fn a_million_who_would_look_on_are_told_why_they_cannot() {
    const LINES: usize = 50;
    let shop = Shop::open().await;
    let access = Access::to_loopback();
    let patience = ServerLimits::default().tails(3);
    let site = Site::patient(Web::new(shop.console.clone(), access.clone()), &access, patience, None).await;
    let mut lookers = Vec::new();
    for _ in 0..3 {
        lookers.push(ask_for_the_tail(&site).await);
    }
    let began = Instant::now();
    let each = async || {
        let mut line = BufReader::new(site.connect().await);
        for _ in 0..1_000_000 / LINES {
            let refused = one_more(&mut line).await;
            assert!(refused.contains("3 live tails are open"), "{refused}");
        }
    };
    join_all((0..LINES).map(|_| each())).await;
    println!("1,000,000 refused in {:?}", began.elapsed());
    assert_eq!(site.get("/livez").await.status, 200);
    for looker in &mut lookers {
        let mut head = [0; 15];
        looker.read_exact(&mut head).await.expect("its answer");
        assert_eq!(&head, b"HTTP/1.1 200 OK");
    }
}

const TAIL: &[u8] = b"GET /api/v1/tail HTTP/1.1\r\nHost: localhost\r\n\r\n";

async fn ask_for_the_tail(site: &Site) -> TcpStream {
    let mut stream = site.connect().await;
    stream.write_all(TAIL).await.expect("a request");
    let mut one = [0; 1];
    while stream.peek(&mut one).await.expect("an answer") == 0 {}
    stream
}

/// The body of the next answer on this connection.
async fn one_more(line: &mut BufReader<TcpStream>) -> String {
    line.write_all(TAIL).await.expect("a request");
    let (mut head, mut length) = (String::new(), 0);
    while head != "\r\n" {
        head.clear();
        assert!(line.read_line(&mut head).await.expect("a line") > 0, "the connection has ended");
        if let Some(said) = head.to_ascii_lowercase().strip_prefix("content-length: ") {
            length = said.trim().parse().expect("a length");
        }
    }
    let mut body = vec![0; length];
    line.read_exact(&mut body).await.expect("a body");
    String::from_utf8(body).expect("text")
}
