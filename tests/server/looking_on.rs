//! Somebody looks on while a listener works, and reads in the journal what has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use keylapse::dead_letters::DeadReason;
use keylapse::{Backoff, Done, ErrorKind, Failure, Lapse, Outcome, Schedule, Topic};
use keylapse_console::{Console, Ending, JournalEntry, Missed, Tail, TailEvent, TailItem};
use keylapse_support::{Fsync, Server, eventually};
use redis::from_redis_value;

use crate::server::console;
use crate::server::support::{PATIENCE, Running, listener, reporting, server_and_schedule, until_dead};

const HOUR: Duration = Duration::from_secs(3600);

fn topic() -> Topic<u32> {
    Topic::new("app:watched:{id}").unwrap().partitions(4)
}

/// What a handler makes of a payload: 0 is done, 1 a retry and then done, 2 dead, 3 once more.
fn outcome(lapse: &Lapse<u32>) -> Result<Outcome, Failure> {
    match (lapse.payload(), lapse.attempt()) {
        (1, 1) => Err(Failure::retry("not yet")),
        (2, _) => Err(Failure::dead("never")),
        (3, 1) => Ok(Outcome::Snooze(Duration::from_millis(5))),
        _ => Ok(Done.into()),
    }
}

async fn next(tail: &mut Tail) -> TailItem {
    let next = tokio::time::timeout(PATIENCE, tail.next()).await;
    next.expect("something is told").expect("the tail goes on")
}

async fn next_event(tail: &mut Tail) -> TailEvent {
    match next(tail).await {
        TailItem::Event(event) => event,
        other => panic!("{other:?}"),
    }
}

async fn spublishes(server: &Server) -> u64 {
    let info: String = from_redis_value(server.cmd(&["INFO", "commandstats"]).await).unwrap();
    let line = info.lines().find(|line| line.starts_with("cmdstat_spublish:"));
    line.map_or(0, |line| line.split(['=', ',']).nth(1).unwrap().parse().unwrap())
}

async fn arm_all(schedule: &Schedule, topic: &Topic<u32>, ids: std::ops::Range<u32>, payload: u32) {
    for id in ids {
        let armed = schedule.arm(topic, [&*id.to_string()], Duration::ZERO, &payload).await.unwrap();
        assert!(armed.is_armed(), "{armed:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_looks_on_sees_each_start_and_each_end_of_a_hundred_timers() {
    let (server, schedule) = server_and_schedule().await;
    let topic = topic().retry(Backoff::table([Duration::from_millis(5)]));
    let (handler, _reported) = reporting(|lapse: Lapse<u32>| ((), outcome(&lapse)));
    let running = Running::start(listener(&server).on(topic.clone(), handler));
    running.until_anchored().await;
    let console = Console::connect(&*server.app_url()).await.unwrap();
    let mut tail = console.tail(&["app.watched"]).await.unwrap();
    arm_all(&schedule, &topic, 0..80, 0).await;
    arm_all(&schedule, &topic, 80..90, 1).await;
    arm_all(&schedule, &topic, 90..100, 2).await;

    let (mut started, mut retried, mut ended) =
        (BTreeMap::<String, u32>::new(), BTreeSet::new(), BTreeMap::new());
    while ended.len() < 100 {
        let TailEvent { key, event, partition, at_ms, reason, attempt, next_ms, .. } =
            next_event(&mut tail).await;
        let key = String::from_utf8(key.to_vec()).unwrap();
        assert!(partition < 4 && at_ms > 1_700_000_000_000);
        match event {
            Ending::Started => {
                assert!(!ended.contains_key(&key), "{key} starts before it ends");
                started.insert(key, attempt.unwrap());
            }
            Ending::Retry => {
                assert!(attempt == Some(2) && next_ms.unwrap() >= at_ms);
                retried.insert(key);
            }
            Ending::Done => assert_eq!(ended.insert(key.clone(), "done"), None, "{attempt:?}"),
            Ending::Dead => {
                assert_eq!((reason, attempt), (Some(DeadReason::Permanent), Some(1)));
                assert_eq!(ended.insert(key, "dead"), None);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(started.len(), 100);
    assert_eq!(started.values().filter(|attempt| **attempt == 2).count(), 10);
    assert_eq!(retried.len(), 10);
    assert_eq!(ended.values().filter(|end| **end == "dead").count(), 10);
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_published_before_somebody_looks_or_after() {
    let (server, schedule) = server_and_schedule().await;
    let topic = topic().partitions(1);
    let (handler, mut reported) = reporting(|lapse: Lapse<u32>| ((), outcome(&lapse)));
    let running = Running::start(listener(&server).on(topic.clone(), handler));
    running.until_anchored().await;
    // Each is armed alone, and ends before the next is: one wake-up each.
    let mut run = async |ids: std::ops::Range<u32>| {
        let before = spublishes(&server).await;
        for id in ids {
            arm_all(&schedule, &topic, id..id + 1, 0).await;
            reported.next().await;
            eventually(PATIENCE, "it is gone", async || {
                schedule.look_up(&topic, [&*id.to_string()]).await.unwrap().is_none()
            })
            .await;
        }
        spublishes(&server).await - before
    };
    assert_eq!(run(0..20).await, 20, "wake-ups and nothing else");

    let console = Console::connect(&*server.app_url()).await.unwrap();
    let mut tail = console.tail::<&str>(&[]).await.unwrap();
    assert_eq!(run(20..40).await, 60, "and a start and an end of each");
    for _ in 0..40 {
        next_event(&mut tail).await;
    }
    drop(tail);
    // As if all the time had passed for which it has looked on.
    server.cmd(&["HSET", "keylapse:{app.watched/0}:meta", "watched_until", "1"]).await;
    assert_eq!(run(40..60).await, 20);
    running.stop().await.unwrap();
}

/// Withdraws and arms a timer until the tail tells something of it.
async fn until_heard(schedule: &Schedule, topic: &Topic<u32>, tail: &mut Tail) {
    eventually(PATIENCE, "it is heard again", async || {
        let _ = schedule.cancel(topic, ["0"]).await.unwrap();
        arm_all(schedule, topic, 0..1, 0).await;
        let told = tokio::time::timeout(Duration::from_millis(100), tail.next()).await;
        told.is_ok_and(|told| matches!(told, Some(TailItem::Event(_))))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_line_is_said_and_what_follows_is_heard() {
    let (server, schedule) = server_and_schedule().await;
    let topic = topic().partitions(1);
    let console = Console::connect(&*server.app_url()).await.unwrap();
    arm_all(&schedule, &topic, 0..1, 0).await;
    let mut tail = console.tail(&["app.watched"]).await.unwrap();
    server.cmd(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    assert_eq!(next(&mut tail).await, TailItem::Missed(Missed::Disconnected));
    until_heard(&schedule, &topic, &mut tail).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_started_again_is_heard_again_whether_it_has_kept_the_topic_or_not() {
    for builder in [Server::builder().aof(Fsync::Always), Server::builder()] {
        let mut server = builder.start().await;
        let schedule = Schedule::connect(&server.app_url()).await.unwrap();
        let topic = topic().partitions(1);
        let console = Console::connect(&*server.app_url()).await.unwrap();
        arm_all(&schedule, &topic, 0..1, 0).await;
        let mut tail = console.tail(&["app.watched"]).await.unwrap();
        server.shutdown().await;
        assert_eq!(next(&mut tail).await, TailItem::Missed(Missed::Disconnected));
        server.restart().await;
        until_heard(&schedule, &topic, &mut tail).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_ends_when_a_topic_has_other_partitions_and_the_next_one_hears_them() {
    let (server, schedule) = server_and_schedule().await;
    let console = Console::connect(&*server.app_url()).await.unwrap();
    let withdraw = async |topic: &Topic<u32>| {
        for id in 0..40_u32 {
            let _ = schedule.arm(topic, [&*id.to_string()], HOUR, &0).await.unwrap();
            let _ = schedule.cancel(topic, [&*id.to_string()]).await.unwrap();
        }
    };
    withdraw(&topic()).await;
    let mut tail = console.tail(&["app.watched"]).await.unwrap();
    console.repartition(&topic(), 7).await.unwrap();
    let ended = async { while tail.next().await.is_some() {} };
    tokio::time::timeout(PATIENCE, ended).await.expect("its end");
    let mut tail = console.tail(&["app.watched"]).await.unwrap();
    withdraw(&topic().partitions(7)).await;
    let mut heard = BTreeSet::new();
    while heard.len() < 7 {
        heard.insert(next_event(&mut tail).await.partition);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_nobody_has_registered_is_not_made() {
    let (server, _schedule) = server_and_schedule().await;
    let console = Console::connect(&*server.app_url()).await.unwrap();
    assert_eq!(console.tail(&["app.watched"]).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(console.topic("app.watched").await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(from_redis_value::<u64>(server.cmd(&["DBSIZE"]).await).unwrap(), 0);
}

async fn whole_journal(console: &Console) -> Vec<JournalEntry> {
    let (mut all, mut behind) = (Vec::new(), None);
    loop {
        let page = console.topic("app.watched").await.unwrap().journal(behind.as_ref(), 7).await.unwrap();
        assert!(page.entries.len() <= 7);
        all.extend(page.entries);
        behind = page.next;
        if behind.is_none() {
            return all;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_journal_says_what_became_of_each_timer() {
    let (server, schedule) = server_and_schedule().await;
    let topic = topic().retry(Backoff::table([Duration::from_millis(5)])).journal(1000, HOUR);
    let (handler, _reported) = reporting(|lapse: Lapse<u32>| ((), outcome(&lapse)));
    let running = Running::start(listener(&server).on(topic.clone(), handler));
    running.until_anchored().await;
    arm_all(&schedule, &topic, 0..20, 0).await;
    arm_all(&schedule, &topic, 20..30, 1).await;
    arm_all(&schedule, &topic, 30..40, 2).await;
    for id in 40..50_u32 {
        let _ = schedule.arm(&topic, [&*id.to_string()], HOUR, &0).await.unwrap();
        let _ = schedule.cancel(&topic, [&*id.to_string()]).await.unwrap();
    }
    until_dead(&schedule, &topic, 10).await;
    let console = Console::connect(&*server.app_url()).await.unwrap();
    eventually(PATIENCE, "all have ended", async || whole_journal(&console).await.len() == 50).await;
    let all = whole_journal(&console).await;
    let keys: BTreeSet<_> = all.iter().map(|entry| &entry.key).collect();
    assert_eq!(keys.len(), 50, "each once");
    assert!(all.is_sorted_by(|one, next| one.ended_ms >= next.ended_ms));
    let count = |outcome| all.iter().filter(|entry| entry.outcome == outcome).count();
    assert_eq!((count(Ending::Done), count(Ending::Dead), count(Ending::Cancelled)), (30, 10, 10));
    let reasons = all.iter().filter_map(|entry| entry.reason);
    assert_eq!(reasons.collect::<Vec<_>>(), [DeadReason::Permanent; 10]);
    assert!(all.iter().all(|entry| entry.id.is_some() && entry.deadline_ms.is_some()));

    let (of_one, whole) =
        console.topic("app.watched").await.unwrap().journal_of_key(b"app:watched:25").await.unwrap();
    assert_eq!((of_one.len(), of_one[0].attempt, of_one[0].outcome, whole), (1, 2, Ending::Done, true));
    let line = serde_json::to_string(&of_one[0]).unwrap();
    assert!(line.starts_with(r#"{"key":"app:watched:25","id":""#), "{line}");
    assert!(line.contains(r#""outcome":"done","attempt":2,"deadline_ms":"#), "{line}");
    running.stop().await.unwrap();

    // Who says nothing of it changes nothing, and who wants none ends it.
    let others = Schedule::connect(&server.app_url()).await.unwrap();
    let bounds = async || {
        console.topic("app.watched").await.unwrap().journal_bounds().await.unwrap().map(|kept| kept.count)
    };
    let _ = others.arm(&self::topic(), ["x"], HOUR, &0).await.unwrap();
    assert_eq!(bounds().await, Some(1000));
    let others = Schedule::connect(&server.app_url()).await.unwrap();
    let _ = others.arm(&self::topic().journal(0, Duration::ZERO), ["y"], HOUR, &0).await.unwrap();
    assert_eq!((bounds().await, whole_journal(&console).await.len()), (None, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_made_anew_keeps_its_journal() {
    let (server, schedule) = server_and_schedule().await;
    let topic = topic().journal(10, HOUR);
    arm_all(&schedule, &topic, 0..1, 0).await;
    server.cmd(&["FLUSHALL"]).await;
    for id in 0..20_u32 {
        let _ = schedule.arm(&topic, [&*id.to_string()], HOUR, &0).await.unwrap();
    }
    for partition in 0..4 {
        let kept =
            server.cmd(&["HGET", &format!("keylapse:{{app.watched/{partition}}}:meta"), "journal"]).await;
        assert_eq!(from_redis_value::<String>(kept).unwrap(), "10:3600000");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_journal_is_left_of_a_destroyed_topic() {
    let (server, schedule) = server_and_schedule().await;
    let console = console(&server);
    let topic = topic().journal(10, HOUR);
    for id in 0..20_u32 {
        let _ = schedule.arm(&topic, [&*id.to_string()], HOUR, &0).await.unwrap();
        let _ = schedule.cancel(&topic, [&*id.to_string()]).await.unwrap();
    }
    assert_eq!(
        from_redis_value::<u64>(server.cmd(&["EXISTS", "keylapse:{app.watched/0}:journal"]).await).unwrap(),
        1
    );
    console.destroy(&topic).await.unwrap();
    let left: Vec<String> = from_redis_value(server.cmd(&["KEYS", "*watched*"]).await).unwrap();
    assert_eq!(left, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_another_number_of_partitions_the_journal_of_those_that_stay_stays() {
    let (server, schedule) = server_and_schedule().await;
    let console = console(&server);
    let topic = topic().journal(100, HOUR);
    for id in 0..40_u32 {
        let _ = schedule.arm(&topic, [&*id.to_string()], HOUR, &0).await.unwrap();
        let _ = schedule.cancel(&topic, [&*id.to_string()]).await.unwrap();
    }
    let kept = async |partition: u32| {
        let name = |what| format!("keylapse:{{app.watched/{partition}}}:{what}");
        let there = server.cmd(&["ZCARD", &name("journal")]).await;
        let bounds = server.cmd(&["HGET", &name("meta"), "journal"]).await;
        (from_redis_value::<u64>(there).unwrap(), from_redis_value::<Option<String>>(bounds).unwrap())
    };
    let mut before = Vec::new();
    for partition in 0..4 {
        before.push(kept(partition).await);
    }
    assert!(before.iter().all(|(count, bounds)| *count > 0 && bounds.is_some()), "{before:?}");
    console.repartition(&topic, 2).await.unwrap();
    for partition in 0..2 {
        assert_eq!(kept(partition).await, before[partition as usize]);
    }
    for partition in 2..4 {
        assert_eq!(kept(partition).await, (0, None));
    }
}

#[test]
fn a_journal_without_bounds_is_refused() {
    for (count, age) in [(1_000_001, HOUR), (1_000_001, Duration::MAX), (1, Duration::ZERO)] {
        let (handler, _reported) = reporting(|_: Lapse<u32>| ((), Ok(Done)));
        let built =
            keylapse::Listener::builder("redis://nowhere").on(topic().journal(count, age), handler).build();
        let refused = built.unwrap_err();
        assert!(refused.to_string().contains("journal must be at most 1,000,000"), "{refused}");
    }
}
