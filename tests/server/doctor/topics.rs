//! Topics, beside who listens.

use std::time::Duration;

use keylapse::{Done, Failure, Lapse, Schedule, Topic};
use keylapse_support::{Server, eventually};
use keylapse_wire::names::WIRE_VERSION;
use redis::Value;

use super::{codes, diagnose, find, well};
use crate::server::support::{PATIENCE, Running, listener};

const LATER: Duration = Duration::from_secs(3600);

fn topic() -> Topic<u64> {
    Topic::new("app:order:{id}").unwrap()
}

async fn scene() -> (Server, Schedule) {
    let server = well().start().await;
    let schedule = Schedule::connect(&server.app_url()).await.unwrap();
    (server, schedule)
}

async fn now_ms(server: &Server) -> u64 {
    let (secs, micros): (u64, u64) = redis::from_redis_value(server.cmd(&["TIME"]).await).unwrap();
    secs * 1000 + micros / 1000
}

/// Leaves a report as a listener of these topics does.
async fn pretend_to_listen(server: &Server, topics: &[&str]) {
    let topics: Vec<_> = topics.iter().map(|name| format!("\"{name}\":{{}}")).collect();
    let report =
        format!("{{\"id\":\"a\",\"at\":{},\"topics\":{{{}}}}}", now_ms(server).await, topics.join(","));
    server.cmd(&["HSET", "keylapse:listeners", "a", &report]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn timers_without_a_listener_are_found_and_worse_once_they_are_overdue() {
    let (server, schedule) = scene().await;
    let _ = schedule.arm(&topic(), "1", LATER, &1).await.unwrap();
    let waiting = diagnose(&server.app_url()).await;
    assert!(find(&waiting, "K602").observed.contains("app.order: 1 timer, 0 listeners"));
    assert!(!codes(&waiting).contains("K601") && !codes(&waiting).contains("K600"));
    let _ = schedule.arm(&topic(), "1", Duration::from_millis(1), &1).await.unwrap();
    let overdue = async || codes(&diagnose(&server.app_url()).await).contains("K601");
    eventually(PATIENCE, "the timer to be overdue", overdue).await;

    let handler = async |_: Lapse<u64>| Ok::<_, Failure>(Done);
    let running = Running::start(listener(&server).on(topic(), handler));
    let well = async || codes(&diagnose(&server.app_url()).await).contains("K600");
    eventually(PATIENCE, "a listener to be there, and the timer to be gone", well).await;
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn listeners_that_do_not_keep_up_are_found() {
    let (server, schedule) = scene().await;
    let _ = schedule.arm(&topic(), "1", LATER, &1).await.unwrap();
    pretend_to_listen(&server, &["app.order"]).await;
    assert!(codes(&diagnose(&server.app_url()).await).contains("K600"));
    let due = "keylapse:{app.order/0}:due";
    for (late, found) in [(1000, false), (60_000, true)] {
        let score = (now_ms(&server).await - late).to_string();
        pretend_to_listen(&server, &["app.order"]).await;
        server.cmd(&["ZADD", due, &score, "app:order:1"]).await;
        assert_eq!(codes(&diagnose(&server.app_url()).await).contains("K603"), found, "{late} ms late");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_without_records_are_found() {
    let (server, schedule) = scene().await;
    for id in ["1", "2", "3"] {
        let _ = schedule.arm(&topic(), id, LATER, &1).await.unwrap();
    }
    assert!(!codes(&diagnose(&server.app_url()).await).contains("K604"));
    server.cmd(&["HDEL", "keylapse:{app.order/0}:timers", "app:order:1", "app:order:3"]).await;
    let diagnosis = diagnose(&server.app_url()).await;
    assert!(find(&diagnosis, "K604").observed.starts_with("app.order: 2 among"));
    assert_eq!(
        server.cmd(&["ZCARD", "keylapse:{app.order/0}:due"]).await,
        Value::Int(3),
        "it is only looked at"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn patterns_that_overlap_are_found_where_one_of_the_topics_has_no_listener() {
    let (server, schedule) = scene().await;
    let renamed = Topic::<u64>::named("orders", "app:order:{number:[0-9]+}").unwrap();
    let other = Topic::<u64>::new("app:cart:{id}").unwrap();
    for topic in [&topic(), &renamed, &other] {
        let _ = schedule.arm(topic, "1", LATER, &1).await.unwrap();
    }
    pretend_to_listen(&server, &["orders"]).await;
    let diagnosis = diagnose(&server.app_url()).await;
    let finding = find(&diagnosis, "K606");
    assert!(finding.observed.starts_with("app.order: app:order:{id} overlaps with orders ("), "{finding}");
    assert_eq!(diagnosis.findings.iter().filter(|finding| finding.code == "K606").count(), 1);
    pretend_to_listen(&server, &["orders", "app.order", "app.cart"]).await;
    assert!(!codes(&diagnose(&server.app_url()).await).contains("K606"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_have_made_of_our_names_is_found() {
    let (server, schedule) = scene().await;
    let _ = schedule.arm(&topic(), "1", LATER, &1).await.unwrap();
    server.cmd(&["HSET", "keylapse:{app.order/0}:meta", "v", "99"]).await;
    assert!(find(&diagnose(&server.app_url()).await, "K607").observed.contains("wire version 99"));
    server.cmd(&["HSET", "keylapse:{app.order/0}:meta", "v", &WIRE_VERSION.to_string()]).await;
    assert!(!codes(&diagnose(&server.app_url()).await).contains("K607"));
    let odd = r#"{"name":"odd","pattern":"a:{","partitions":1,"marker_keys":true}"#;
    for (name, entry) in [("odd", odd), ("half", &odd[..20])] {
        server.cmd(&["HSET", "keylapse:topics", name, entry]).await;
        let diagnosis = diagnose(&server.app_url()).await;
        let finding = find(&diagnosis, "K607");
        assert!(finding.observed.starts_with(&format!("{name}, as it is registered: ")), "{finding}");
        server.cmd(&["HDEL", "keylapse:topics", name]).await;
    }
    server.cmd(&["DEL", "keylapse:{app.order/0}:due"]).await;
    server.cmd(&["SET", "keylapse:{app.order/0}:due", "x"]).await;
    assert!(find(&diagnose(&server.app_url()).await, "K607").observed.contains("WRONGTYPE"));
    server.cmd(&["DEL", "keylapse:topics"]).await;
    server.cmd(&["SET", "keylapse:topics", "x"]).await;
    assert!(find(&diagnose(&server.app_url()).await, "K607").observed.contains("keylapse:topics"));
}

/// What is done for all of them is bounded, and said.
#[tokio::test(flavor = "multi_thread")]
async fn of_very_many_topics_some_are_looked_at() {
    let (server, _) = scene().await;
    let many = "for n = 1, 3000 do redis.call('HSET', KEYS[1], 't' .. n, cjson.encode({
        name = 't' .. n, pattern = 'app:' .. n .. ':{id}', partitions = 1, marker_keys = true })) end";
    server.cmd(&["EVAL", many, "1", "keylapse:topics"]).await;
    let diagnosis = diagnose(&server.app_url()).await;
    let observed = &find(&diagnosis, "K600").observed;
    assert_eq!(observed, "3,000 topics (1,000 examined), 0 timers, 0 listeners");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_paused_is_not_late() {
    let (server, schedule) = scene().await;
    let _ = schedule.arm(&topic(), "1", Duration::from_millis(1), &1).await.unwrap();
    schedule.pause(&topic(), "the bank is\x1b[2J down").await.unwrap();
    let diagnosis = diagnose(&server.app_url()).await;
    let finding = find(&diagnosis, "K608");
    assert!(finding.observed.ends_with(r"reason: the bank is\u{1b}[2J down"), "{finding}");
    assert!(!codes(&diagnosis).contains("K601"));
    schedule.resume(&topic()).await.unwrap();
    assert!(!codes(&diagnose(&server.app_url()).await).contains("K608"));
}
