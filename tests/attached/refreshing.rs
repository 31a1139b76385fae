//! Sessions: keys whose deadlines are put off with each request, and the one that logs out.

use std::time::{Duration, Instant};

use keylapse::Attached;
use keylapse::health::EventMode;
use keylapse_support::{Server, eventually, took_at_most};

use crate::scene::{ALL_FLAGS, Harness, Notes, PATIENCE, now, order, orders_with_values, watched};

/// Far more than a test takes.
const HOUR: Duration = Duration::from_secs(3600);
const KEYS: usize = 100;
const ROUNDS: usize = 40;

async fn hearing(topic: Attached<bytes::Bytes>) -> Harness {
    let harness = Harness::with(ALL_FLAGS, topic.scan_every(HOUR), Notes::handler).await;
    harness.listener.until_mode(EventMode::Changes).await;
    harness
}

/// How often the server was given a command, by clients and scripts.
async fn calls(server: &Server, command: &str) -> u64 {
    let stats: String = redis::from_redis_value(server.cmd(&["INFO", "commandstats"]).await).expect("a text");
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.and_then(|rest| rest.split(',').next()).map_or(0, |calls| calls.parse().expect("a number"))
}

/// Enrols keys for a minute, and extends each of them over and over, with its value.
async fn refresh_all(harness: &Harness) {
    let ids: Vec<_> = (0..KEYS).map(|id| id.to_string()).collect();
    let deadline = now() + 60_000;
    for id in &ids {
        harness.write_until(id, "a session", deadline).await;
    }
    for id in &ids {
        harness.until_watched(id, deadline).await;
    }
    // What was written is known a moment later.
    tokio::time::sleep(Duration::from_millis(300)).await;
    harness.cmd(&["CONFIG", "RESETSTAT"]).await;
    for round in 0..ROUNDS as u64 {
        for id in &ids {
            harness.cmd(&["PEXPIREAT", &order(id), &(deadline + round).to_string()]).await;
        }
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(watched(&harness.server, &order("0")).await, Some(deadline), "the deadline that is looked at");
}

#[tokio::test]
async fn a_refresh_costs_neither_a_reading_of_the_value_nor_an_enrolment() {
    let harness = hearing(orders_with_values()).await;
    refresh_all(&harness).await;
    let refreshes = (KEYS * ROUNDS) as u64;
    let read = calls(&harness.server, "pexpiretime").await;
    println!("{read} deadlines were read for {refreshes} refreshes");
    assert!(read > 0 && read <= refreshes, "{read} for {refreshes}");
    for (command, most) in [("strlen", 0), ("zadd", 10), ("hset", 50)] {
        let calls = calls(&harness.server, command).await;
        assert!(calls <= most, "{calls} × {command}");
    }
    harness.listener.stop().await;
}

#[tokio::test]
async fn where_deadlines_only_grow_a_refresh_is_not_even_read() {
    let harness = hearing(orders_with_values().assume_ttl_only_extended()).await;
    refresh_all(&harness).await;
    let read = calls(&harness.server, "pexpiretime").await;
    assert!(read <= 10, "{read} deadlines were read");
    // Shortly before the deadline that is known it is read all the same, and the later one counts.
    let first = harness.enrol("extended", "a session", 2000).await;
    let second = first + 3000;
    harness.cmd(&["PEXPIREAT", &order("extended"), &second.to_string()]).await;
    harness.passes_without("extended", first, second).await;
    harness.fires_once("extended", "a session", second).await;
    harness.listener.stop().await;
}

/// As a logout does.
#[tokio::test]
async fn timed_a_deadline_that_is_brought_forward_is_known_within_100_ms() {
    let harness = hearing(orders_with_values()).await;
    let mut took = Vec::new();
    for id in 0..10 {
        let id = id.to_string();
        let late = harness.enrol(&id, "a session", 60_000).await;
        harness.cmd(&["PEXPIREAT", &order(&id), &(late + 5000).to_string()]).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let early = now() + 20_000;
        let since = Instant::now();
        harness.cmd(&["PEXPIREAT", &order(&id), &early.to_string()]).await;
        eventually(PATIENCE, "the earlier deadline to be known", async || {
            watched(&harness.server, &order(&id)).await == Some(early)
        })
        .await;
        took.push(since.elapsed());
    }
    took.sort();
    took_at_most(Duration::from_millis(100), took[took.len() / 2], "half of them to be known");
    harness.listener.stop().await;
}

#[tokio::test]
async fn an_extended_key_whose_session_ends_fires_with_the_value_of_its_last_moment() {
    let harness = hearing(orders_with_values()).await;
    let first = harness.enrol("1", "a session", 2500).await;
    harness.cmd(&["PEXPIREAT", &order("1"), &(first + 2000).to_string()]).await;
    // Not heard: the deadline stays as it is.
    harness.cmd(&["APPEND", &order("1"), ", longer"]).await;
    let last = now() + 1500;
    harness.cmd(&["PEXPIREAT", &order("1"), &last.to_string()]).await;
    let run = harness.fires_once("1", "a session, longer", last).await;
    let age = last - run.value_read.expect("a value was kept");
    assert!((1..=400).contains(&age), "read a quarter of a second before the deadline, and not {age} ms");
    harness.listener.stop().await;
}

/// What was written again after it has ended is another life, with another value.
#[tokio::test]
async fn a_new_life_of_a_known_key_is_enrolled_with_its_own_value() {
    let harness = hearing(orders_with_values()).await;
    harness.enrol("1", "a session", 60_000).await;
    harness.cmd(&["DEL", &order("1")]).await;
    let later = now() + 90_000;
    harness.write_until("1", "another", later).await;
    harness.until_watched("1", later).await;
    let soon = harness.write("1", "the third", 1500).await;
    harness.fires_once("1", "the third", soon).await;
    let again = harness.write("1", "the fourth", 1500).await;
    eventually(PATIENCE, "its next end", async || harness.of("1").len() == 2).await;
    let run = harness.of("1").remove(1);
    assert_eq!((run.text(), run.deadline), (Some("the fourth"), again), "{run:?}");
    harness.listener.stop().await;
}
