//! Who scans, and who enrols: two listeners do, of which one may die; it is handed over at once, and left to those who
//! hear.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use keylapse::Attached;
use keylapse::attach::Treatment;
use keylapse::health::EventMode;
use keylapse_support::{Server, eventually};

use crate::scene::{ALL_FLAGS, Harness, Notes, PATIENCE, Running, now, orders, orders_with_values, server};

const SCANNER: &str = "keylapse:{orders/0}:duties";
/// How long a duty is a listener's, without its saying so again.
const HOLD: u64 = 6000;
/// How often others ask for it.
const ASKS: u64 = 2000;

async fn has_duty(server: &Server, field: &str) -> bool {
    server.cmd(&["HEXISTS", SCANNER, field]).await == redis::Value::Int(1)
}

#[tokio::test]
async fn a_listener_that_stops_leaves_the_scanning_to_whoever_comes() {
    let harness = Harness::hearing(ALL_FLAGS).await;
    assert!(has_duty(&harness.server, "scanner").await);
    let Harness { server, listener, notes, .. } = harness;
    let second = Running::start(&server, |builder| builder.attach(orders_with_values(), notes.handler()));
    eventually(PATIENCE, "a second", async || has_duty(&server, "tracker").await).await;
    listener.stop().await;
    assert!(!has_duty(&server, "scanner").await);
    let stopped = now();
    eventually(PATIENCE, "the second to scan", async || second.attached().scans > 0).await;
    assert!(now() < stopped + HOLD, "it had not to wait for the end of the first one's time");
    second.stop().await;
    assert!(!has_duty(&server, "scanner").await && !has_duty(&server, "tracker").await);
}

/// After the death of one that scans those who hear have as long again to take over.
#[tokio::test]
async fn a_listener_that_hears_nothing_leaves_the_scanning_to_others_first() {
    let server = server("").await;
    let over = now() + 500;
    let until = over.to_string();
    let held = ["scanner", "the dead", "scanner_until", &until, "tracker", "too", "tracker_until", &until];
    server.cmd(&[&["HSET", SCANNER], &held[..]].concat()).await;
    let topic = orders_with_values().scan_every(Duration::from_millis(100));
    let listener = Running::start(&server, |builder| builder.attach(topic, Notes::default().handler()));
    eventually(PATIENCE, "a scan", async || listener.attached().scans > 0).await;
    assert!(now() >= over + HOLD, "{} ms too early", over + HOLD - now());
    listener.stop().await;
}

/// Keys that live for 1.5 to 4 seconds, fifty a second: long enough to be read on a machine that is busy.
async fn write(server: &Server, keys: std::ops::Range<u64>) {
    let mut line = server.conn().await;
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    for number in keys {
        ticks.tick().await;
        let (key, ttl) = (format!("app:order:{number}"), 1500 + number * 7919 % 2500);
        redis::cmd("SET").arg(key).arg(number).arg("PX").arg(ttl).exec_async(&mut line).await.unwrap();
    }
}

/// What is not enrolled is ignored, so that it would be lost.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_enrols_may_die_and_nothing_is_lost_nor_any_value() {
    const KEYS: u64 = 750;
    /// What the dead had claimed runs after it, and so before the last key was written.
    const LEASE: u64 = 5000;
    let server = server(ALL_FLAGS).await;
    let notes = Notes::default();
    let topic = || orders().lease(Duration::from_millis(LEASE));
    let attached = || Attached::<Bytes>::new(topic()).keep_values(1024).untracked(Treatment::Ignore);
    let mut listeners = Vec::new();
    for duty in ["scanner", "tracker", "scanner"] {
        let listener = Running::start(&server, |builder| builder.attach(attached(), notes.handler()));
        eventually(PATIENCE, "its duty", async || has_duty(&server, duty).await).await;
        listener.until_mode(EventMode::Changes).await;
        listeners.push(listener);
    }
    let deaths = async {
        let second = listeners.remove(1);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let first_death = now();
        listeners.remove(0).kill();
        // The second is the first by then, and the third the second.
        tokio::time::sleep(Duration::from_millis(HOLD + ASKS)).await;
        eventually(PATIENCE, "a successor", async || two_have_duties(&server).await).await;
        let second_death = now();
        second.kill();
        [first_death, second_death]
    };
    let ((), deaths) = tokio::join!(write(&server, 0..KEYS), deaths);
    let fired = || notes.runs().iter().map(|run| run.key.clone()).collect::<BTreeSet<_>>().len() as u64;
    eventually(PATIENCE, "all to fire", async || fired() == KEYS).await;
    let mut runs: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for run in notes.runs().iter() {
        runs.entry(run.key.clone()).or_default().push(run.at);
        let number = run.key.trim_start_matches("app:order:");
        assert_eq!(run.text(), Some(number), "{run:?}");
        assert!(run.deadline_known && run.at >= run.deadline, "{run:?}");
    }
    // What a listener was running when it died runs again once its lease has ended, and nothing else runs twice.
    let died_of = |at: u64| deaths.iter().any(|death| at <= *death && *death < at + LEASE);
    for (key, runs) in runs.iter().filter(|(_, runs)| runs.len() > 1) {
        assert!(runs.len() == 2 && died_of(runs[0]), "{key}: {runs:?}, deaths {deaths:?}");
    }
    listeners.remove(0).stop().await;
}

/// Whether two listeners that live have both duties: what the dead had has ended.
async fn two_have_duties(server: &Server) -> bool {
    let until = async |field| {
        let ends: Option<u64> = redis::from_redis_value(server.cmd(&["HGET", SCANNER, field]).await).unwrap();
        ends.is_some_and(|ends| ends > now())
    };
    until("scanner_until").await && until("tracker_until").await
}
