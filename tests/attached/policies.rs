//! What can be chosen for a topic: who fires, what is kept of values, and how retries are made.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use keylapse::attach::{KeptValue, Treatment, WriteBack};
use keylapse::dead_letters::{DeadReason, Replayed};
use keylapse::{Attached, Backoff, Done, Expired, Expiry, Failure, Lapse, Schedule, Topic};
use keylapse_support::eventually;
use tokio::sync::Semaphore;

use crate::rows::evict;
use crate::scene::{
    ALL_FLAGS, Harness, Log, Notes, PATIENCE, Run, Running, enrolled, in_time, now, order, orders,
    orders_with_values, server, until_time,
};

const EXPIRED: &str = "__keyevent@0__:expired";

/// Retried after so many ms.
fn retried(ms: u64) -> Attached<Bytes> {
    Attached::new(orders().retry(Backoff::fixed(Duration::from_millis(ms)))).keep_values(1024)
}

#[tokio::test]
async fn what_is_not_enrolled_is_ignored_on_demand_and_what_is_fires() {
    let server = server("Ex").await;
    server.cmd(&["SET", &order("1"), "a sofa", "PX", "5000"]).await;
    let harness =
        Harness::on(server, orders_with_values().untracked(Treatment::Ignore), Notes::handler).await;
    harness.listener.until_enrolled(1).await;
    harness.write("2", "a lamp", 100).await;
    eventually(PATIENCE, "it to be ignored", async || harness.listener.attached().ignored == 1).await;
    eventually(PATIENCE, "the other", async || harness.of("1").len() == 1).await;
    assert_eq!(harness.of("1")[0].text(), Some("a sofa"));
    assert_eq!(harness.notes.count(), 1, "{:?}", harness.notes.runs());
    harness.listener.stop().await;
}

#[tokio::test]
async fn a_forged_expiry_of_an_enrolled_key_is_ignored_on_demand() {
    let topic = orders_with_values().untracked(Treatment::Ignore);
    let harness = Harness::with(ALL_FLAGS, topic, Notes::handler).await;
    let deadline = harness.enrol("1", "a sofa", 3000).await;
    for _ in 0..3 {
        harness.cmd(&["PUBLISH", EXPIRED, &order("1")]).await;
    }
    eventually(PATIENCE, "them to be ignored", async || harness.listener.attached().ignored == 3).await;
    harness.fires_once("1", "a sofa", deadline).await;
    harness.listener.stop().await;
}

/// As the documentation of [`Attached::untracked`] says.
#[tokio::test]
async fn whoever_may_publish_can_forge_an_expiry() {
    let harness = Harness::with(ALL_FLAGS, orders_with_values(), Notes::handler).await;
    let deadline = harness.enrol("1", "a sofa", 60_000).await;
    for id in ["1", "never-written"] {
        harness.cmd(&["PUBLISH", EXPIRED, &order(id)]).await;
        let run = harness.only(id).await;
        assert!(run.at < deadline && run.deadline <= run.at, "{run:?}");
    }
    harness.listener.stop().await;
}

#[tokio::test]
async fn vanished_keys_fire_on_demand() {
    for flags in [ALL_FLAGS, "Ex"] {
        let topic = orders_with_values().vanished(Treatment::Fire).scan_every(Duration::from_millis(100));
        let harness = Harness::with(flags, topic, Notes::handler).await;
        let deadline = harness.enrol("1", "a sofa", 3000).await;
        evict(&harness.server, &order("1")).await;
        let run = harness.fires_once("1", "a sofa", deadline).await;
        assert_eq!(run.expiry, Expiry::Vanished, "{flags}");
        harness.listener.stop().await;
    }
}

#[tokio::test]
async fn a_deletion_fires_as_vanished_only_where_it_is_not_heard() {
    for (flags, fires) in [(ALL_FLAGS, false), ("Ex", true)] {
        let topic = orders_with_values().vanished(Treatment::Fire).scan_every(Duration::from_millis(100));
        let harness = Harness::with(flags, topic, Notes::handler).await;
        let deadline = harness.enrol("1", "a sofa", 2000).await;
        harness.cmd(&["DEL", &order("1")]).await;
        if fires {
            let run = harness.fires_once("1", "a sofa", deadline).await;
            assert_eq!(run.expiry, Expiry::Vanished);
        } else {
            harness.pass(deadline).await;
            assert!(harness.of("1").is_empty(), "{:?}", harness.of("1"));
        }
        harness.listener.stop().await;
    }
}

#[tokio::test]
async fn values_are_kept_up_to_the_cap() {
    let harness = Harness::with(ALL_FLAGS, Attached::new(orders()).keep_values(8), Notes::handler).await;
    for (id, value) in [("empty", ""), ("fits", "12345678"), ("large", "123456789")] {
        harness.enrol(id, value, 2000).await;
    }
    assert_eq!(harness.only("empty").await.text(), Some(""));
    assert_eq!(harness.only("fits").await.text(), Some("12345678"));
    assert_eq!(harness.only("large").await.value, KeptValue::TooLarge(Some(9)));
    harness.listener.stop().await;
}

#[tokio::test]
async fn without_being_asked_no_values_are_kept() {
    let harness = Harness::with(ALL_FLAGS, Attached::new(orders()), Notes::handler).await;
    let deadline = harness.enrol("1", "a sofa", 1500).await;
    let run = harness.only("1").await;
    assert_eq!((run.value, run.deadline, run.deadline_known), (KeptValue::NotKept, deadline, true));
    harness.listener.stop().await;
}

const KINDS: [(&str, &[&str]); 5] = [
    ("hash", &["HSET", "", "a", "1", "b", "2"]),
    ("list", &["RPUSH", "", "a", "b", "c"]),
    ("set", &["SADD", "", "a", "b", "c"]),
    ("zset", &["ZADD", "", "1", "a", "2", "b"]),
    ("stream", &["XADD", "", "1-1", "a", "1", "b", "2"]),
];

/// Enrols one key of each type, for so many ms; their digests.
async fn enrol_kinds(harness: &Harness, ms: u64) -> Vec<redis::Value> {
    let mut digests = Vec::new();
    in_time(ms, ms / 2, async |deadline| digests = write_kinds(harness, deadline).await).await;
    digests
}

async fn write_kinds(harness: &Harness, deadline: u64) -> Vec<redis::Value> {
    let mut digests = Vec::new();
    for (kind, words) in KINDS {
        let key = order(kind);
        harness.cmd(&["DEL", &key]).await;
        let words: Vec<_> =
            words.iter().map(|word| if word.is_empty() { key.as_str() } else { word }).collect();
        harness.cmd(&words).await;
        // Whether there is a deadline is part of a digest.
        digests.push(harness.cmd(&["DEBUG", "DIGEST-VALUE", &key]).await);
        harness.cmd(&["PEXPIREAT", &key, &deadline.to_string()]).await;
    }
    for (kind, _) in KINDS {
        harness.until_watched(kind, deadline).await;
    }
    digests
}

#[tokio::test]
async fn dumps_can_be_restored_to_what_they_were() {
    for flags in [ALL_FLAGS, "Ex"] {
        let topic = orders_with_values().keep_dumps().scan_every(Duration::from_millis(100));
        let harness = Harness::with(flags, topic, Notes::handler).await;
        let digests = enrol_kinds(&harness, 4000).await;
        for ((kind, _), digest) in KINDS.iter().zip(digests) {
            let run = harness.only(kind).await;
            let KeptValue::Dumped(dump) = &run.value else { panic!("{kind}: {run:?}") };
            harness.server.cmd(&[b"RESTORE", kind.as_bytes(), b"0", dump]).await;
            assert_eq!(harness.cmd(&["DEBUG", "DIGEST-VALUE", kind]).await, digest, "{kind}");
        }
        harness.listener.stop().await;
    }
}

#[tokio::test]
async fn without_dumps_other_types_fire_without_a_value() {
    let harness = Harness::with(ALL_FLAGS, orders_with_values(), Notes::handler).await;
    enrol_kinds(&harness, 3000).await;
    for (kind, _) in KINDS {
        assert_eq!(harness.only(kind).await.value, KeptValue::NotKept, "{kind}");
    }
    harness.listener.stop().await;
}

#[tokio::test]
async fn large_dumps_are_not_kept() {
    let topic = Attached::new(orders()).keep_values(64).keep_dumps();
    let harness = Harness::with(ALL_FLAGS, topic, Notes::handler).await;
    let many: Vec<_> = (0..100).map(|n| n.to_string()).collect();
    harness.cmd(&["HSET", &order("wide"), "field", &many.concat()]).await;
    let mut words = vec!["SADD".to_owned(), order("many")];
    words.extend(many);
    harness.server.cmd(&words).await;
    in_time(3000, 1000, async |deadline| {
        for id in ["wide", "many"] {
            harness.cmd(&["PEXPIREAT", &order(id), &deadline.to_string()]).await;
            harness.until_watched(id, deadline).await;
        }
    })
    .await;
    let wide = harness.only("wide").await.value;
    assert!(matches!(wide, KeptValue::TooLarge(Some(size)) if size > 64), "{wide:?}");
    assert_eq!(harness.only("many").await.value, KeptValue::TooLarge(None));
    harness.listener.stop().await;
}

/// Only what is read a quarter of a second before the deadline can know of it.
#[tokio::test]
async fn a_value_that_changes_unheard_is_read_again_before_the_deadline() {
    // On a machine that is too busy to read it in time, it says when it was read, and another is tried.
    for _ in 0..5 {
        let mut harness = None;
        let deadline = in_time(5000, 1500, async |deadline| {
            let server = server("Ex").await;
            server.cmd(&["SET", &order("1"), "a sofa", "PXAT", &deadline.to_string()]).await;
            let begun = Harness::on(server, orders_with_values(), Notes::handler).await;
            begun.until_watched("1", deadline).await;
            harness = Some(begun);
        })
        .await;
        let harness = harness.expect("it is begun");
        until_time(deadline - 1000).await;
        harness.cmd(&["SET", &order("1"), "a lamp", "KEEPTTL"]).await;
        let written = now();
        let run = harness.only("1").await;
        assert!((run.deadline, run.deadline_known) == (deadline, true) && run.at >= deadline, "{run:?}");
        harness.listener.stop().await;
        if run.value_read.is_some_and(|read| read >= written) {
            assert_eq!(run.text(), Some("a lamp"), "{run:?}");
            return;
        }
    }
    panic!("no value was read again before its deadline");
}

#[tokio::test]
async fn beyond_the_cap_keys_are_counted_and_fire_when_heard() {
    let (log, _kept) = Log::keep();
    let harness = Harness::with(ALL_FLAGS, orders_with_values().cap(2), Notes::handler).await;
    in_time(3000, 1500, async |deadline| {
        for id in ["1", "2", "3", "4"] {
            harness.write_until(id, "a sofa", deadline).await;
        }
        eventually(PATIENCE, "two to find no room", async || harness.listener.attached().over_limit >= 2)
            .await;
    })
    .await;
    assert_eq!(enrolled(&harness.server).await, 2);
    let mut with_value = 0;
    for id in ["1", "2", "3", "4"] {
        let run = harness.only(id).await;
        assert_eq!(run.expiry, Expiry::Announced, "{run:?}");
        assert_eq!(run.text().is_some(), run.deadline_known, "{run:?}");
        with_value += usize::from(run.deadline_known);
    }
    assert_eq!(with_value, 2);
    assert_eq!(log.lines_with(&["ERROR", "maximum number of keys", "orders", "cap=2"]), 1);
    harness.listener.stop().await;
}

#[tokio::test]
async fn what_has_fired_makes_room_for_others() {
    let harness = Harness::with(ALL_FLAGS, orders_with_values().cap(1), Notes::handler).await;
    for id in ["1", "2"] {
        let deadline = harness.enrol(id, "a sofa", 1500).await;
        eventually(PATIENCE, "it to fire", async || harness.of(id).len() == 1).await;
        assert_eq!((harness.of(id)[0].deadline, harness.of(id)[0].text()), (deadline, Some("a sofa")));
    }
    assert_eq!(harness.listener.attached().over_limit, 0);
    harness.listener.stop().await;
}

#[tokio::test]
async fn all_partitions_are_looked_after() {
    for flags in [ALL_FLAGS, "Ex", ""] {
        let server = server(flags).await;
        let notes = Notes::default();
        let topic = Attached::new(orders().partitions(4)).keep_values(64);
        let topic = topic.scan_every(Duration::from_millis(100));
        let listener = Running::start(&server, |builder| builder.attach(topic, notes.handler()));
        eventually(PATIENCE, "a scan", async || listener.attached().scans > 0).await;
        // Without flags a key has to be found before it expires, on a busy machine, too.
        let deadline = now() + 6000;
        for n in 0..40 {
            let until = deadline.to_string();
            server.cmd(&["SET", &order(&n.to_string()), "a sofa", "PXAT", &until]).await;
        }
        listener.until_enrolled(40).await;
        notes.until(40).await;
        server.cmd(&["SET", &order("last"), "", "PX", "500"]).await;
        notes.until(41).await;
        for n in 0..40 {
            let runs = notes.of(&order(&n.to_string()));
            assert_eq!(runs.len(), 1, "{flags}: {runs:?}");
            assert_eq!((runs[0].deadline, runs[0].text()), (deadline, Some("a sofa")), "{flags}");
        }
        for partition in 0..4 {
            let watch = format!("keylapse:{{orders/{partition}}}:tracked");
            assert_eq!(server.cmd(&["HLEN", &watch]).await, redis::Value::Int(0), "{flags}");
        }
        listener.stop().await;
    }
}

#[tokio::test]
async fn a_value_that_cannot_be_read_is_a_dead_letter_and_its_neighbour_fires() {
    let server = server(ALL_FLAGS).await;
    let prices = Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = prices.clone();
    let topic =
        Topic::<u64>::named("orders", "app:order:{id}").unwrap().undecodable_retention(Duration::ZERO);
    let topic = Attached::new(topic).keep_values(64);
    let listener = Running::start(&server, |builder| {
        builder.attach(topic, move |lapse: Lapse<Expired<u64>>| {
            kept.lock().unwrap().push(lapse.payload().value().copied());
            std::future::ready(Ok::<_, Failure>(Done))
        })
    });
    listener.until_mode(keylapse::health::EventMode::Changes).await;
    eventually(PATIENCE, "a scan", async || listener.attached().scans > 0).await;
    server.cmd(&["SET", &order("1"), "a sofa", "PX", "1500"]).await;
    server.cmd(&["SET", &order("2"), "1999", "PX", "2000"]).await;
    eventually(PATIENCE, "both ends", async || {
        let stats = listener.stats.topic("orders").unwrap();
        (stats.dead, stats.handled) == (1, 1)
    })
    .await;
    assert_eq!(*prices.lock().unwrap(), [Some(1999)]);
    listener.stop().await;
}

async fn text(harness: &Harness, id: &str) -> Option<String> {
    redis::from_redis_value(harness.cmd(&["GET", &order(id)]).await).unwrap()
}

async fn deadline_of(harness: &Harness, id: &str) -> i64 {
    redis::from_redis_value(harness.cmd(&["PEXPIRETIME", &order(id)]).await).unwrap()
}

#[tokio::test]
async fn a_retry_lives_in_the_index_alone_by_default() {
    let harness = Harness::with(ALL_FLAGS, retried(1500), |notes| notes.failing(1)).await;
    harness.enrol("1", "a sofa", 1500).await;
    eventually(PATIENCE, "the retry", async || {
        let has_run = !harness.of("1").is_empty();
        let is_gone = deadline_of(&harness, "1").await == -2;
        // From when it has expired.
        assert!(is_gone || !has_run, "the key was created again");
        harness.of("1").len() == 2
    })
    .await;
    let runs = harness.of("1");
    assert_eq!((runs[1].attempt, runs[1].text()), (2, Some("a sofa")));
    assert_eq!(harness.listener.attached().restored, 0);
    harness.listener.stop().await;
}

#[tokio::test]
async fn a_key_is_written_back_until_its_retry_on_demand() {
    let topic = retried(2000).write_back(WriteBack::counting_in("attempt"));
    let harness = Harness::with(ALL_FLAGS, topic, |notes| notes.failing(2)).await;
    let value = r#"{"attempt":1,"sofa":true}"#;
    harness.enrol("1", value, 1500).await;
    for attempt in 2..=3 {
        let restored = u64::from(attempt - 1);
        eventually(PATIENCE, "the key", async || {
            harness.listener.attached().restored == restored && text(&harness, "1").await.is_some()
        })
        .await;
        let there: serde_json::Value = serde_json::from_str(&text(&harness, "1").await.unwrap()).unwrap();
        assert_eq!(there, serde_json::json!({ "attempt": attempt, "sofa": true }));
        let until = u64::try_from(deadline_of(&harness, "1").await).unwrap();
        assert!(until > now() && until <= now() + 2000);
        eventually(PATIENCE, "the retry", async || harness.of("1").len() == attempt as usize).await;
        let run = harness.of("1").last().unwrap().clone();
        assert_eq!((run.attempt, run.deadline, run.text()), (attempt, until, Some(value)));
        assert!(run.at >= until, "early: {run:?}");
    }
    harness.pass(now()).await;
    assert_eq!(harness.of("1").len(), 3, "{:?}", harness.of("1"));
    assert_eq!(deadline_of(&harness, "1").await, -2);
    let stats = harness.listener.attached();
    assert_eq!((stats.restored, stats.returned), (2, 2), "{stats:?}");
    harness.listener.stop().await;
}

/// As programs count whose key holds nothing but the count.
#[tokio::test]
async fn a_key_that_is_a_count_comes_back_with_the_next() {
    let topic = Attached::new(orders().retry(Backoff::fixed(Duration::from_millis(1500))));
    let harness =
        Harness::with(ALL_FLAGS, topic.write_back(WriteBack::counting()), |notes| notes.failing(2)).await;
    harness.enrol("1", "1", 1500).await;
    for attempt in ["2", "3"] {
        eventually(PATIENCE, "the count", async || text(&harness, "1").await.as_deref() == Some(attempt))
            .await;
        assert!(deadline_of(&harness, "1").await > 0, "it expires");
    }
    eventually(PATIENCE, "the last retry", async || harness.of("1").len() == 3).await;
    harness.pass(now()).await;
    let attempts: Vec<_> = harness.of("1").iter().map(|run| run.attempt).collect();
    assert_eq!((attempts, deadline_of(&harness, "1").await), (vec![1, 2, 3], -2));
    harness.listener.stop().await;
}

/// What was written back expires just when its retry begins, and is heard before, during or after it.
#[tokio::test]
async fn each_retry_that_is_written_back_runs_once() {
    let topic = retried(250).write_back(WriteBack::unchanged());
    let fails =
        |_: &Notes, lapse: &Lapse<_>| lapse.attempt() <= 5 && !lapse.key().starts_with(b"app:order:sentinel");
    let harness = Harness::with(ALL_FLAGS, topic, |notes| notes.failing_if(fails)).await;
    let ids: Vec<_> = (0..20).map(|n| n.to_string()).collect();
    for id in &ids {
        harness.write(id, "a sofa", 1500).await;
    }
    eventually(PATIENCE, "all to be done", async || {
        harness.listener.stats.topic("orders").unwrap().handled >= ids.len() as u64
    })
    .await;
    harness.pass(now() + 500).await;
    for id in &ids {
        let attempts: Vec<_> = harness.of(id).iter().map(|run| run.attempt).collect();
        assert_eq!(attempts, [1, 2, 3, 4, 5, 6], "{:?}", harness.of(id));
    }
    assert_eq!(harness.listener.stats.topic("orders").unwrap().superseded, 0);
    harness.listener.stop().await;
}

/// Its announcement would be waited for in vain, and the next expiry of the key taken for it.
#[tokio::test]
async fn what_could_not_be_written_back_takes_no_later_expiry_for_its_own() {
    let topic = Attached::new(orders().retry(Backoff::fixed(Duration::from_millis(500)))).keep_values(4);
    let topic = topic.write_back(WriteBack::unchanged());
    let harness = Harness::with("Ex", topic, |notes| notes.failing(1)).await;
    harness.write("1", "a sofa, too large", 50).await;
    eventually(PATIENCE, "the retry", async || harness.of("1").len() == 2).await;
    assert_eq!((harness.of("1")[1].attempt, harness.listener.attached().restored), (2, 0));
    harness.write("1", "a lamp", 50).await;
    eventually(PATIENCE, "its next life", async || harness.of("1").len() >= 3).await;
    assert_eq!((harness.of("1")[2].attempt, harness.listener.attached().returned), (1, 0));
    harness.listener.stop().await;
}

/// Of order 1.
fn is_first_run(notes: &Notes, lapse: &Lapse<Expired<Bytes>>) -> bool {
    lapse.key() == b"app:order:1" && notes.of("app:order:1").is_empty()
}

/// Waits until order 1 has fired again, for this life of its writer's, and is not run any more.
async fn runs_for_its_writer(harness: &Harness, deadline: u64) -> Run {
    eventually(PATIENCE, "its own life", async || harness.of("1").len() == 2).await;
    harness.pass(now()).await;
    let runs = harness.of("1");
    assert_eq!(runs.len(), 2, "{runs:?}");
    let run = runs[1].clone();
    assert_eq!((run.attempt, run.text(), run.deadline), (1, Some("a lamp"), deadline), "{runs:?}");
    run
}

#[tokio::test]
async fn a_writer_who_takes_the_name_of_a_retry_supersedes_it() {
    let topic = retried(2500).write_back(WriteBack::unchanged());
    let harness = Harness::with(ALL_FLAGS, topic, |notes| notes.failing_if(is_first_run)).await;
    harness.enrol("1", "a sofa", 1500).await;
    eventually(PATIENCE, "the key", async || harness.listener.attached().restored == 1).await;
    assert_eq!(text(&harness, "1").await.as_deref(), Some("a sofa"));
    let retry = u64::try_from(deadline_of(&harness, "1").await).unwrap();
    let later = retry + 4000;
    harness.write_until("1", "a lamp", later).await;
    harness.pass(retry).await;
    assert_eq!(harness.of("1").len(), 1, "{:?}", harness.of("1"));
    assert_eq!(text(&harness, "1").await.as_deref(), Some("a lamp"));
    assert_eq!(deadline_of(&harness, "1").await, i64::try_from(later).unwrap());
    assert!(runs_for_its_writer(&harness, later).await.at >= later);
    harness.listener.stop().await;
}

#[tokio::test]
async fn a_name_that_is_taken_when_a_retry_is_to_be_written_back_is_left_alone() {
    let topic = retried(2000).write_back(WriteBack::unchanged());
    let gate = Arc::new(Semaphore::new(0));
    let wait = gate.clone();
    let harness = Harness::with(ALL_FLAGS, topic, |notes| {
        let notes = notes.clone();
        move |lapse: Lapse<Expired<Bytes>>| {
            let first = is_first_run(&notes, &lapse);
            notes.note(&lapse);
            let wait = wait.clone();
            async move {
                if first {
                    wait.acquire().await.unwrap().forget();
                    return Err(Failure::retry("no"));
                }
                Ok(Done)
            }
        }
    })
    .await;
    harness.enrol("1", "a sofa", 1500).await;
    harness.notes.until(1).await;
    let later = harness.enrol("1", "a lamp", 9000).await;
    gate.add_permits(1);
    harness.pass(now() + 2500).await;
    assert_eq!(harness.of("1").len(), 1, "{:?}", harness.of("1"));
    assert_eq!(text(&harness, "1").await.as_deref(), Some("a lamp"));
    runs_for_its_writer(&harness, later).await;
    assert_eq!(harness.listener.attached().restored, 0);
    harness.listener.stop().await;
}

/// The index is what is retried; the key is a copy of it for others to see.
#[tokio::test]
async fn a_retry_whose_key_is_deleted_runs_all_the_same() {
    let topic = retried(2000).write_back(WriteBack::unchanged());
    let harness = Harness::with(ALL_FLAGS, topic, |notes| notes.failing(1)).await;
    harness.enrol("1", "a sofa", 1500).await;
    eventually(PATIENCE, "the key", async || harness.listener.attached().restored == 1).await;
    let retry = u64::try_from(deadline_of(&harness, "1").await).unwrap();
    harness.cmd(&["DEL", &order("1")]).await;
    eventually(PATIENCE, "the retry", async || harness.of("1").len() == 2).await;
    let run = harness.of("1")[1].clone();
    assert_eq!((run.attempt, run.text(), run.deadline), (2, Some("a sofa"), retry), "{run:?}");
    assert_eq!(deadline_of(&harness, "1").await, -2);
    harness.listener.stop().await;
}

#[tokio::test]
async fn a_lapse_that_fails_for_good_is_a_dead_letter_with_its_value_and_can_be_replayed() {
    let topic = Attached::new(orders().max_attempts(1)).keep_values(1024);
    let harness = Harness::with(ALL_FLAGS, topic, |notes| notes.failing(1)).await;
    let deadline = harness.enrol("1", "a sofa", 1500).await;
    eventually(PATIENCE, "the end", async || harness.listener.stats.topic("orders").unwrap().dead == 1).await;

    let schedule = Schedule::connect(&harness.server.app_url()).await.unwrap();
    let attached = orders_with_values();
    assert_eq!(schedule.dead_letter_counts(attached.topic()).await.unwrap(), (1, 0));
    let letters = schedule.dead_letters(attached.topic()).page(10).await.unwrap();
    let letter = &letters[0];
    assert_eq!((&letter.key[..], letter.reason), (order("1").as_bytes(), DeadReason::Exhausted));
    assert_eq!(letter.last_error(), Some("not yet"));
    let died_for = letter.deadline.unwrap().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    assert_eq!(died_for, u128::from(deadline));
    assert_eq!(letter.payload.as_ref().unwrap(), "a sofa");

    assert_eq!(schedule.replay(letter).await.unwrap(), Replayed::Replayed);
    eventually(PATIENCE, "the replay", async || harness.of("1").len() == 2).await;
    let run = harness.of("1")[1].clone();
    assert_eq!((run.attempt, run.text(), run.expiry), (1, Some("a sofa"), Expiry::Announced), "{run:?}");
    harness.listener.stop().await;
}

/// A life that ends while the letter lies there is a lapse of its own.
#[tokio::test]
async fn a_key_whose_last_life_is_a_dead_letter_fires_again() {
    let topic = Attached::new(orders().max_attempts(1)).keep_values(1024);
    let harness = Harness::with(ALL_FLAGS, topic, |notes| notes.failing(1)).await;
    for (life, value) in ["a sofa", "a lamp"].into_iter().enumerate() {
        harness.enrol("1", value, 1500).await;
        let dead = life as u64 + 1;
        eventually(PATIENCE, "the end", async || {
            harness.listener.stats.topic("orders").unwrap().dead == dead
        })
        .await;
        assert_eq!(harness.of("1").last().unwrap().text(), Some(value));
    }
    assert_eq!(harness.of("1").len(), 2);
    harness.listener.stop().await;
}
