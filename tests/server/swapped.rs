//! keylapse's names are taken away from under a listener: the database is exchanged for another, or emptied.

use std::time::Duration;

use keylapse::{Schedule, Topic};
use keylapse_support::{Server, eventually, skipped_on_a_cluster};
use redis::Value;

use super::capture::Capture;
use super::hostile::scene::{Tally, orders};
use super::support::{PATIENCE, Running, listener};

const GONE: &str = "the data of keylapse is gone";
const BACK: &str = "the earlier data of keylapse is back";
const MADE: &str = "a partition had vanished from Redis";

async fn says(log: &Capture, times: usize, what: &str) {
    let said = async || log.lines().iter().filter(|line| line.contains(what)).count() >= times;
    eventually(PATIENCE, what, said).await;
    let lines: Vec<_> = log.lines().into_iter().filter(|line| line.contains(what)).collect();
    assert!(lines.iter().all(|line| line.starts_with("WARN")) && lines.len() == times, "{lines:#?}");
}

async fn listening(server: &Server, topic: &Topic<String>) -> (Schedule, Tally, Running) {
    let tally = Tally::default();
    let running = Running::start(listener(server).on(topic.clone(), tally.handler()));
    running.until_anchored().await;
    let schedule = Schedule::connect(&server.app_url()).await.unwrap();
    let reported = async || server.cmd(&["HLEN", "keylapse:listeners"]).await == Value::Int(1);
    eventually(PATIENCE, "a report", reported).await;
    (schedule, tally, running)
}

/// Producers make the names again before a listener can miss them.
#[tokio::test]
async fn a_database_that_is_exchanged_and_exchanged_back_is_said_and_the_timers_of_each_run_in_it() {
    if skipped_on_a_cluster("SWAPDB is refused") {
        return;
    }
    let ((log, _guard), server) = (Capture::start(), Server::start().await);
    let topic = orders().partitions(2);
    let (schedule, tally, running) = listening(&server, &topic).await;
    let arm = async |id: &str, delay| schedule.arm(&topic, [id], delay, &String::new()).await.unwrap();
    let _ = arm("before", Duration::from_secs(1)).await;

    server.cmd(&["SWAPDB", "0", "5"]).await;
    let _ = arm("meanwhile", Duration::ZERO).await;
    tally.until(1).await;
    says(&log, 1, GONE).await;
    let listed = async || server.cmd(&["HEXISTS", "keylapse:topics", "orders"]).await == Value::Int(1);
    eventually(PATIENCE, "the topic to be listed", listed).await;
    assert_eq!(tally.runs_of("app:order:before"), 0, "it is in the other database");

    server.cmd(&["SWAPDB", "0", "5"]).await;
    says(&log, 1, BACK).await;
    tally.until(2).await;
    let _ = arm("after", Duration::ZERO).await;
    tally.until(3).await;
    running.stop().await.unwrap();
    tally.assert_each_once(3);
    says(&log, 1, GONE).await;
}

#[tokio::test]
async fn a_database_that_is_emptied_is_said_and_new_timers_run() {
    let ((log, _guard), server) = (Capture::start(), Server::start().await);
    let (schedule, tally, running) = listening(&server, &orders()).await;
    server.cmd(&["FLUSHDB"]).await;
    says(&log, 1, GONE).await;
    let _ = schedule.arm(&orders(), ["1"], Duration::ZERO, &String::new()).await.unwrap();
    tally.until(1).await;
    running.stop().await.unwrap();
}

/// By hand; all else is there, so that nothing but the call that misses it can tell.
#[tokio::test]
async fn a_partition_that_is_deleted_under_a_listener_is_named() {
    let ((log, _guard), server) = (Capture::start(), Server::start().await);
    let topic = orders().partitions(2);
    let (schedule, tally, running) = listening(&server, &topic).await;
    let _ = schedule.arm(&topic, ["1"], Duration::from_millis(500), &String::new()).await.unwrap();
    for partition in 0..2 {
        server.cmd(&["DEL", &format!("keylapse:{{orders/{partition}}}:meta")]).await;
    }
    tally.until(1).await;
    says(&log, 1, MADE).await;
    let lines = log.lines();
    let line = lines.iter().find(|line| line.contains(MADE)).unwrap();
    assert!(line.contains("topic=orders") && line.contains("partition="), "{line}");
    running.stop().await.unwrap();
}
