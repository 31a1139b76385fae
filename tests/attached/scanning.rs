//! One scan serves all attached topics of a listener; and it looks at no more than it has to.

use std::time::{Duration, Instant};

use bytes::Bytes;
use keylapse::health::EventMode;
use keylapse::{Attached, Topic};
use keylapse_support::{Server, eventually};

use crate::scene::{ALL_FLAGS, Notes, PATIENCE, Running, orders_with_values, server};

const HOUR: Duration = Duration::from_secs(3600);
const NAMES: [&str; 3] = ["orders", "locks", "odd"];

fn topic(name: &str, pattern: &str) -> Attached<Bytes> {
    Attached::new(Topic::raw_named(name, pattern).unwrap())
}

fn three(every: Duration) -> [Attached<Bytes>; 3] {
    // What stands for something in a pattern of the server stands for itself here.
    let odd = topic("odd", "app:[o]r*d^-:{id}");
    [topic("orders", "app:order:{id}"), topic("locks", "app:lock:{id}").scan_rate(10_000), odd]
        .map(|topic| topic.scan_every(every))
}

fn listen(server: &Server, topics: [Attached<Bytes>; 3], notes: &Notes) -> Running {
    Running::start(server, |builder| {
        topics.into_iter().fold(builder, |builder, topic| builder.attach(topic, notes.handler()))
    })
}

/// So many keys of each topic, and others.
async fn fill(server: &Server, of_each: u64, others: u64) {
    let mut pipeline = redis::pipe();
    for id in 0..of_each {
        for prefix in ["app:order:", "app:lock:", "app:[o]r*d^-:"] {
            pipeline.cmd("SET").arg(format!("{prefix}{id}")).arg("").arg("EX").arg(9000).ignore();
        }
    }
    for id in 0..others {
        pipeline.cmd("SET").arg(format!("app:other:{id}")).arg("").arg("EX").arg(9000).ignore();
    }
    pipeline.exec_async(&mut server.conn().await).await.unwrap();
}

/// How often a command was called.
async fn calls(server: &Server, command: &str) -> u64 {
    let info: String = redis::from_redis_value(server.cmd(&["INFO", "commandstats"]).await).unwrap();
    let line = info.lines().find(|line| line.starts_with(&format!("cmdstat_{command}:")));
    line.map_or(0, |line| line.split(['=', ',']).nth(1).unwrap().parse().unwrap())
}

#[tokio::test]
async fn one_scan_serves_three_topics_at_the_smallest_of_their_rates() {
    let (server, notes) = (server("Ex").await, Notes::default());
    fill(&server, 1000, 7000).await;
    let began = Instant::now();
    let listener = listen(&server, three(HOUR), &notes);
    let stats = |name| listener.stats.attached(name).unwrap();
    eventually(PATIENCE, "scans", async || NAMES.iter().all(|name| stats(name).scans > 0)).await;
    // 10,000 keys, at 10,000 a second.
    assert!(began.elapsed() >= Duration::from_millis(900), "{:?}", began.elapsed());
    eventually(PATIENCE, "all", async || NAMES.iter().all(|name| stats(name).tracked == 1000)).await;
    let made = calls(&server, "scan").await;
    for name in NAMES {
        let stats = stats(name);
        assert_eq!((stats.scans, stats.scan_steps), (1, made), "{name}");
    }
    listener.stop().await;
}

/// The names of others are not even sent.
#[tokio::test]
async fn a_scan_asks_for_what_begins_like_its_topics() {
    let (server, notes) = (server("Ex").await, Notes::default());
    fill(&server, 10, 5000).await;
    let listener = listen(&server, three(HOUR), &notes);
    server.cmd(&["CONFIG", "RESETSTAT"]).await;
    let stats = |name| listener.stats.attached(name).unwrap();
    eventually(PATIENCE, "all", async || NAMES.iter().all(|name| stats(name).tracked == 10)).await;
    let info: String = redis::from_redis_value(server.cmd(&["INFO", "stats"]).await).unwrap();
    let sent = info.lines().find_map(|line| line.strip_prefix("total_net_output_bytes:")).unwrap();
    let sent: u64 = sent.trim().parse().unwrap();
    assert!(sent < 5000 * "app:other:1234".len() as u64, "{sent} bytes");
    listener.stop().await;
}

/// Where all is heard, and nothing happens; but after a gap there is a scan at once.
#[tokio::test]
async fn an_idle_database_is_scanned_rarely_where_all_is_heard() {
    const EVERY: Duration = Duration::from_millis(100);
    let time_of_scans = async |flags, mode, count| {
        let (server, notes) = (server(flags).await, Notes::default());
        fill(&server, 10, 100).await;
        let topic = orders_with_values().scan_every(EVERY);
        let listener = Running::start(&server, |builder| builder.attach(topic, notes.handler()));
        listener.until_mode(mode).await;
        listener.until_scanned().await;
        let (began, before) = (Instant::now(), listener.attached().scans);
        let made = async || listener.attached().scans >= before + count;
        eventually(PATIENCE, "so many scans", made).await;
        let took = began.elapsed();
        server.cmd(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
        let after = listener.attached().scans;
        eventually(PATIENCE, "a scan after the gap", async || listener.attached().scans > after).await;
        listener.stop().await;
        took
    };
    let heard = time_of_scans(ALL_FLAGS, EventMode::Changes, 5).await;
    let expiries = time_of_scans("Ex", EventMode::Expired, 5).await;
    println!("5 scans in {heard:?} where all is heard, in {expiries:?} where expiries are");
    // After 0.1, 0.2, 0.4, 0.8 and 1.6 s, unless a gap on a busy machine needs one more; and every 0.1 s.
    assert!(heard >= Duration::from_millis(1400) && expiries < heard, "{heard:?}, {expiries:?}");
}

#[tokio::test]
async fn keys_over_4_kib_are_counted_and_left_alone() {
    let (server, notes) = (server("Ex").await, Notes::default());
    let long = format!("app:order:{}", "x".repeat(4096));
    server.cmd(&["SET", &long, "", "EX", "9000"]).await;
    server.cmd(&["SET", "app:order:1", "", "EX", "9000"]).await;
    let topic = orders_with_values().scan_every(HOUR);
    let listener = Running::start(&server, |builder| builder.attach(topic, notes.handler()));
    listener.until_enrolled(1).await;
    eventually(PATIENCE, "a scan", async || listener.attached().scans > 0).await;
    let found = listener.attached();
    assert_eq!((found.tracked, found.too_long), (1, found.scans), "{found:?}");
    listener.stop().await;
}
