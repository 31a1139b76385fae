//! What can be chosen for a topic: who fires, what is kept of values, and how retries are made.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use keylapse::{
    Attached, Backoff, DeadReason, Done, Expired, Expiry, Failure, KeptValue, Lapse, Replayed, Schedule,
    Topic, Unenrolled, Vanished, WriteBack,
};
use keylapse_support::eventually;
use tokio::sync::Semaphore;

use crate::rows::evict;
use crate::scene::{
    ALL_FLAGS, Log, Notes, PATIENCE, Running, Stage, enrolled, now, order, orders, orders_with_values,
    server, until_time,
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
    let stage = Stage::on(server, orders_with_values().unenrolled(Unenrolled::Ignore), Notes::handler).await;
    stage.listener.until_enrolled(1).await;
    stage.write("2", "a lamp", 100).await;
    eventually(PATIENCE, "it to be ignored", async || stage.listener.attached().ignored == 1).await;
    eventually(PATIENCE, "the other", async || stage.of("1").len() == 1).await;
    assert_eq!(stage.of("1")[0].text(), Some("a sofa"));
    assert_eq!(stage.notes.count(), 1, "{:?}", stage.notes.runs());
    stage.listener.stop().await;
}

#[tokio::test]
async fn a_forged_expiry_of_an_enrolled_key_is_ignored_on_demand() {
    let topic = orders_with_values().unenrolled(Unenrolled::Ignore);
    let stage = Stage::with(ALL_FLAGS, topic, Notes::handler).await;
    let deadline = stage.enrol("1", "a sofa", 3000).await;
    for _ in 0..3 {
        stage.cmd(&["PUBLISH", EXPIRED, &order("1")]).await;
    }
    eventually(PATIENCE, "them to be ignored", async || stage.listener.attached().ignored == 3).await;
    stage.fires_once("1", "a sofa", deadline).await;
    stage.listener.stop().await;
}

/// As the documentation of [`Unenrolled::Fire`] says.
#[tokio::test]
async fn whoever_may_publish_can_forge_an_expiry() {
    let stage = Stage::with(ALL_FLAGS, orders_with_values(), Notes::handler).await;
    let deadline = stage.enrol("1", "a sofa", 60_000).await;
    for id in ["1", "never-written"] {
        stage.cmd(&["PUBLISH", EXPIRED, &order(id)]).await;
        let run = stage.only(id).await;
        assert!(run.at < deadline && run.deadline <= run.at, "{run:?}");
    }
    stage.listener.stop().await;
}

#[tokio::test]
async fn vanished_keys_fire_on_demand() {
    for flags in [ALL_FLAGS, "Ex"] {
        let topic = orders_with_values().vanished(Vanished::Fire).scan_every(Duration::from_millis(100));
        let stage = Stage::with(flags, topic, Notes::handler).await;
        let deadline = stage.enrol("1", "a sofa", 3000).await;
        evict(&stage.server, &order("1")).await;
        let run = stage.fires_once("1", "a sofa", deadline).await;
        assert_eq!(run.expiry, Expiry::Vanished, "{flags}");
        stage.listener.stop().await;
    }
}

#[tokio::test]
async fn a_deletion_fires_as_vanished_only_where_it_is_not_heard() {
    for (flags, fires) in [(ALL_FLAGS, false), ("Ex", true)] {
        let topic = orders_with_values().vanished(Vanished::Fire).scan_every(Duration::from_millis(100));
        let stage = Stage::with(flags, topic, Notes::handler).await;
        let deadline = stage.enrol("1", "a sofa", 2000).await;
        stage.cmd(&["DEL", &order("1")]).await;
        if fires {
            let run = stage.fires_once("1", "a sofa", deadline).await;
            assert_eq!(run.expiry, Expiry::Vanished);
        } else {
            stage.pass(deadline).await;
            assert!(stage.of("1").is_empty(), "{:?}", stage.of("1"));
        }
        stage.listener.stop().await;
    }
}

#[tokio::test]
async fn values_are_kept_up_to_the_cap() {
    let stage = Stage::with(ALL_FLAGS, Attached::new(orders()).keep_values(8), Notes::handler).await;
    for (id, value) in [("empty", ""), ("fits", "12345678"), ("large", "123456789")] {
        stage.enrol(id, value, 2000).await;
    }
    assert_eq!(stage.only("empty").await.text(), Some(""));
    assert_eq!(stage.only("fits").await.text(), Some("12345678"));
    assert_eq!(stage.only("large").await.value, KeptValue::TooLarge(Some(9)));
    stage.listener.stop().await;
}

#[tokio::test]
async fn without_being_asked_no_values_are_kept() {
    let stage = Stage::with(ALL_FLAGS, Attached::new(orders()), Notes::handler).await;
    let deadline = stage.enrol("1", "a sofa", 1500).await;
    let run = stage.only("1").await;
    assert_eq!((run.value, run.deadline, run.deadline_known), (KeptValue::NotCaptured, deadline, true));
    stage.listener.stop().await;
}

const KINDS: [(&str, &[&str]); 5] = [
    ("hash", &["HSET", "", "a", "1", "b", "2"]),
    ("list", &["RPUSH", "", "a", "b", "c"]),
    ("set", &["SADD", "", "a", "b", "c"]),
    ("zset", &["ZADD", "", "1", "a", "2", "b"]),
    ("stream", &["XADD", "", "1-1", "a", "1", "b", "2"]),
];

/// One key of each type, all with this deadline; their digests.
async fn write_kinds(stage: &Stage, deadline: u64) -> Vec<redis::Value> {
    let mut digests = Vec::new();
    for (kind, words) in KINDS {
        let key = order(kind);
        let words: Vec<_> =
            words.iter().map(|word| if word.is_empty() { key.as_str() } else { word }).collect();
        stage.cmd(&words).await;
        // Whether there is a deadline is part of a digest.
        digests.push(stage.cmd(&["DEBUG", "DIGEST-VALUE", &key]).await);
        stage.cmd(&["PEXPIREAT", &key, &deadline.to_string()]).await;
    }
    for (kind, _) in KINDS {
        stage.until_watched(kind, deadline).await;
    }
    assert!(now() < deadline, "enrolled too late for the test to mean anything");
    digests
}

#[tokio::test]
async fn dumps_can_be_restored_to_what_they_were() {
    for flags in [ALL_FLAGS, "Ex"] {
        let topic = orders_with_values().keep_dumps().scan_every(Duration::from_millis(100));
        let stage = Stage::with(flags, topic, Notes::handler).await;
        let digests = write_kinds(&stage, now() + 4000).await;
        for ((kind, _), digest) in KINDS.iter().zip(digests) {
            let run = stage.only(kind).await;
            let KeptValue::Dumped(dump) = &run.value else { panic!("{kind}: {run:?}") };
            stage.server.cmd(&[b"RESTORE", kind.as_bytes(), b"0", dump]).await;
            assert_eq!(stage.cmd(&["DEBUG", "DIGEST-VALUE", kind]).await, digest, "{kind}");
        }
        stage.listener.stop().await;
    }
}

#[tokio::test]
async fn without_dumps_other_types_fire_without_a_value() {
    let stage = Stage::with(ALL_FLAGS, orders_with_values(), Notes::handler).await;
    write_kinds(&stage, now() + 3000).await;
    for (kind, _) in KINDS {
        assert_eq!(stage.only(kind).await.value, KeptValue::NotCaptured, "{kind}");
    }
    stage.listener.stop().await;
}

#[tokio::test]
async fn large_dumps_are_not_kept() {
    let topic = Attached::new(orders()).keep_values(64).keep_dumps();
    let stage = Stage::with(ALL_FLAGS, topic, Notes::handler).await;
    let deadline = now() + 3000;
    let many: Vec<_> = (0..100).map(|n| n.to_string()).collect();
    stage.cmd(&["HSET", &order("wide"), "field", &many.concat()]).await;
    let mut words = vec!["SADD".to_owned(), order("many")];
    words.extend(many);
    stage.server.cmd(&words).await;
    for id in ["wide", "many"] {
        stage.cmd(&["PEXPIREAT", &order(id), &deadline.to_string()]).await;
        stage.until_watched(id, deadline).await;
    }
    let wide = stage.only("wide").await.value;
    assert!(matches!(wide, KeptValue::TooLarge(Some(size)) if size > 64), "{wide:?}");
    assert_eq!(stage.only("many").await.value, KeptValue::TooLarge(None));
    stage.listener.stop().await;
}

/// Only what is read a quarter of a second before the deadline can know of it.
#[tokio::test]
async fn a_value_that_changes_unheard_is_read_again_before_the_deadline() {
    let server = server("Ex").await;
    let deadline = now() + 5000;
    server.cmd(&["SET", &order("1"), "a sofa", "PXAT", &deadline.to_string()]).await;
    let stage = Stage::on(server, orders_with_values(), Notes::handler).await;
    stage.until_watched("1", deadline).await;
    until_time(deadline - 1000).await;
    stage.cmd(&["SET", &order("1"), "a lamp", "KEEPTTL"]).await;
    stage.fires_once("1", "a lamp", deadline).await;
    stage.listener.stop().await;
}

#[tokio::test]
async fn beyond_the_cap_keys_are_counted_and_fire_when_heard() {
    let (log, _kept) = Log::keep();
    let stage = Stage::with(ALL_FLAGS, orders_with_values().cap(2), Notes::handler).await;
    let deadline = now() + 3000;
    for id in ["1", "2", "3", "4"] {
        stage.write_until(id, "a sofa", deadline).await;
    }
    eventually(PATIENCE, "two to find no room", async || stage.listener.attached().no_room >= 2).await;
    assert!(now() < deadline, "enrolled too late for the test to mean anything");
    assert_eq!(enrolled(&stage.server).await, 2);
    let mut with_value = 0;
    for id in ["1", "2", "3", "4"] {
        let run = stage.only(id).await;
        assert_eq!(run.expiry, Expiry::Heard, "{run:?}");
        assert_eq!(run.text().is_some(), run.deadline_known, "{run:?}");
        with_value += usize::from(run.deadline_known);
    }
    assert_eq!(with_value, 2);
    assert_eq!(log.lines_with(&["ERROR", "may remember", "orders", "cap=2"]), 1);
    stage.listener.stop().await;
}

#[tokio::test]
async fn what_has_fired_makes_room_for_others() {
    let stage = Stage::with(ALL_FLAGS, orders_with_values().cap(1), Notes::handler).await;
    for id in ["1", "2"] {
        let deadline = stage.enrol(id, "a sofa", 1500).await;
        eventually(PATIENCE, "it to fire", async || stage.of(id).len() == 1).await;
        assert_eq!((stage.of(id)[0].deadline, stage.of(id)[0].text()), (deadline, Some("a sofa")));
    }
    assert_eq!(stage.listener.attached().no_room, 0);
    stage.listener.stop().await;
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
        let deadline = now() + 3000;
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
            let watch = format!("keylapse:{{orders/{partition}}}:watch");
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
    let topic = Attached::new(Topic::<u64>::named("orders", "app:order:{id}").unwrap()).keep_values(64);
    let listener = Running::start(&server, |builder| {
        builder.attach(topic, move |lapse: Lapse<Expired<u64>>| {
            kept.lock().unwrap().push(lapse.payload().value().copied());
            std::future::ready(Ok::<_, Failure>(Done))
        })
    });
    listener.until_mode(keylapse::EventMode::Changes).await;
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

async fn text(stage: &Stage, id: &str) -> Option<String> {
    redis::from_redis_value(stage.cmd(&["GET", &order(id)]).await).unwrap()
}

async fn deadline_of(stage: &Stage, id: &str) -> i64 {
    redis::from_redis_value(stage.cmd(&["PEXPIRETIME", &order(id)]).await).unwrap()
}

#[tokio::test]
async fn a_retry_lives_in_the_index_alone_by_default() {
    let stage = Stage::with(ALL_FLAGS, retried(1500), |notes| notes.failing(1)).await;
    stage.enrol("1", "a sofa", 1500).await;
    eventually(PATIENCE, "the retry", async || {
        let there = deadline_of(&stage, "1").await;
        // Gone once it has expired, and from then on.
        assert!(there == -2 || stage.of("1").is_empty(), "the key was created again");
        stage.of("1").len() == 2
    })
    .await;
    let runs = stage.of("1");
    assert_eq!((runs[1].attempt, runs[1].text()), (2, Some("a sofa")));
    assert_eq!(stage.listener.attached().restored, 0);
    stage.listener.stop().await;
}

#[tokio::test]
async fn a_key_is_written_back_until_its_retry_on_demand() {
    let topic = retried(2000).write_back(WriteBack::counting_in("attempt"));
    let stage = Stage::with(ALL_FLAGS, topic, |notes| notes.failing(2)).await;
    let value = r#"{"attempt":1,"sofa":true}"#;
    stage.enrol("1", value, 1500).await;
    for attempt in 2..=3 {
        let restored = u64::from(attempt - 1);
        eventually(PATIENCE, "the key", async || {
            stage.listener.attached().restored == restored && text(&stage, "1").await.is_some()
        })
        .await;
        let there: serde_json::Value = serde_json::from_str(&text(&stage, "1").await.unwrap()).unwrap();
        assert_eq!(there, serde_json::json!({ "attempt": attempt, "sofa": true }));
        let until = u64::try_from(deadline_of(&stage, "1").await).unwrap();
        assert!(until > now() && until <= now() + 2000);
        eventually(PATIENCE, "the retry", async || stage.of("1").len() == attempt as usize).await;
        let run = stage.of("1").last().unwrap().clone();
        assert_eq!((run.attempt, run.deadline, run.text()), (attempt, until, Some(value)));
        assert!(run.at >= until, "early: {run:?}");
    }
    stage.pass(now()).await;
    assert_eq!(stage.of("1").len(), 3, "{:?}", stage.of("1"));
    assert_eq!(deadline_of(&stage, "1").await, -2);
    let stats = stage.listener.attached();
    assert_eq!((stats.restored, stats.returned), (2, 2), "{stats:?}");
    stage.listener.stop().await;
}

/// What was written back expires just when its retry begins, and is heard before, during or after it.
#[tokio::test]
async fn each_retry_that_is_written_back_runs_once() {
    let topic = retried(250).write_back(WriteBack::unchanged());
    let stage = Stage::with(ALL_FLAGS, topic, |notes| {
        let notes = notes.clone();
        move |lapse: Lapse<Expired<Bytes>>| {
            notes.note(&lapse);
            let fails = lapse.attempt() <= 5 && !lapse.key().starts_with(b"app:order:sentinel");
            std::future::ready(if fails { Err(Failure::retry("no")) } else { Ok(Done) })
        }
    })
    .await;
    let ids: Vec<_> = (0..20).map(|n| n.to_string()).collect();
    for id in &ids {
        stage.write(id, "a sofa", 1500).await;
    }
    eventually(PATIENCE, "all to be done", async || {
        stage.listener.stats.topic("orders").unwrap().handled >= ids.len() as u64
    })
    .await;
    stage.pass(now() + 500).await;
    for id in &ids {
        let attempts: Vec<_> = stage.of(id).iter().map(|run| run.attempt).collect();
        assert_eq!(attempts, [1, 2, 3, 4, 5, 6], "{:?}", stage.of(id));
    }
    assert_eq!(stage.listener.stats.topic("orders").unwrap().superseded, 0);
    stage.listener.stop().await;
}

#[tokio::test]
async fn a_writer_who_takes_the_name_of_a_retry_supersedes_it() {
    let stage = Stage::with(ALL_FLAGS, retried(2500).write_back(WriteBack::unchanged()), |notes| {
        let notes = notes.clone();
        move |lapse: Lapse<Expired<Bytes>>| {
            let first = lapse.key() == b"app:order:1" && notes.of("app:order:1").is_empty();
            notes.note(&lapse);
            std::future::ready(if first { Err(Failure::retry("no")) } else { Ok(Done) })
        }
    })
    .await;
    stage.enrol("1", "a sofa", 1500).await;
    eventually(PATIENCE, "the key", async || stage.listener.attached().restored == 1).await;
    assert_eq!(text(&stage, "1").await.as_deref(), Some("a sofa"));
    let retry = u64::try_from(deadline_of(&stage, "1").await).unwrap();
    let later = retry + 2000;
    stage.write_until("1", "a lamp", later).await;
    stage.pass(retry).await;
    assert_eq!(stage.of("1").len(), 1, "{:?}", stage.of("1"));
    assert_eq!(text(&stage, "1").await.as_deref(), Some("a lamp"));
    assert_eq!(deadline_of(&stage, "1").await, i64::try_from(later).unwrap());
    eventually(PATIENCE, "its own life", async || stage.of("1").len() == 2).await;
    stage.pass(now()).await;
    let runs = stage.of("1");
    assert_eq!(runs.len(), 2, "{runs:?}");
    assert_eq!((runs[1].attempt, runs[1].text(), runs[1].deadline), (1, Some("a lamp"), later), "{runs:?}");
    assert!(runs[1].at >= later);
    stage.listener.stop().await;
}

#[tokio::test]
async fn a_name_that_is_taken_when_a_retry_is_to_be_written_back_is_left_alone() {
    let topic = retried(2000).write_back(WriteBack::unchanged());
    let gate = Arc::new(Semaphore::new(0));
    let wait = gate.clone();
    let stage = Stage::with(ALL_FLAGS, topic, |notes| {
        let notes = notes.clone();
        move |lapse: Lapse<Expired<Bytes>>| {
            let first = lapse.key() == b"app:order:1" && notes.of("app:order:1").is_empty();
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
    stage.enrol("1", "a sofa", 1500).await;
    stage.notes.until(1).await;
    let later = stage.enrol("1", "a lamp", 6000).await;
    gate.add_permits(1);
    stage.pass(now() + 2500).await;
    assert_eq!(stage.of("1").len(), 1, "{:?}", stage.of("1"));
    assert_eq!(text(&stage, "1").await.as_deref(), Some("a lamp"));
    eventually(PATIENCE, "its own life", async || stage.of("1").len() == 2).await;
    stage.pass(now()).await;
    let runs = stage.of("1");
    assert_eq!(runs.len(), 2, "{runs:?}");
    assert_eq!((runs[1].attempt, runs[1].text(), runs[1].deadline), (1, Some("a lamp"), later), "{runs:?}");
    assert_eq!(stage.listener.attached().restored, 0);
    stage.listener.stop().await;
}

/// The index is what is retried; the key is a copy of it for others to see.
#[tokio::test]
async fn a_retry_whose_key_is_deleted_runs_all_the_same() {
    let topic = retried(2000).write_back(WriteBack::unchanged());
    let stage = Stage::with(ALL_FLAGS, topic, |notes| notes.failing(1)).await;
    stage.enrol("1", "a sofa", 1500).await;
    eventually(PATIENCE, "the key", async || stage.listener.attached().restored == 1).await;
    let retry = u64::try_from(deadline_of(&stage, "1").await).unwrap();
    stage.cmd(&["DEL", &order("1")]).await;
    eventually(PATIENCE, "the retry", async || stage.of("1").len() == 2).await;
    let run = stage.of("1")[1].clone();
    assert_eq!((run.attempt, run.text(), run.deadline), (2, Some("a sofa"), retry), "{run:?}");
    assert_eq!(deadline_of(&stage, "1").await, -2);
    stage.listener.stop().await;
}

#[tokio::test]
async fn a_lapse_that_fails_for_good_is_a_dead_letter_with_its_value_and_can_be_replayed() {
    let topic = Attached::new(orders().max_attempts(1)).keep_values(1024);
    let stage = Stage::with(ALL_FLAGS, topic, |notes| notes.failing(1)).await;
    let deadline = stage.enrol("1", "a sofa", 1500).await;
    eventually(PATIENCE, "the end", async || stage.listener.stats.topic("orders").unwrap().dead == 1).await;

    let schedule = Schedule::connect(&stage.server.app_url()).await.unwrap();
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
    eventually(PATIENCE, "the replay", async || stage.of("1").len() == 2).await;
    let run = stage.of("1")[1].clone();
    assert_eq!((run.attempt, run.text(), run.expiry), (1, Some("a sofa"), Expiry::Heard), "{run:?}");
    stage.listener.stop().await;
}

/// A life that ends while the letter lies there is a lapse of its own.
#[tokio::test]
async fn a_key_whose_last_life_is_a_dead_letter_fires_again() {
    let topic = Attached::new(orders().max_attempts(1)).keep_values(1024);
    let stage = Stage::with(ALL_FLAGS, topic, |notes| notes.failing(1)).await;
    for (life, value) in ["a sofa", "a lamp"].into_iter().enumerate() {
        stage.enrol("1", value, 1500).await;
        let dead = life as u64 + 1;
        eventually(PATIENCE, "the end", async || stage.listener.stats.topic("orders").unwrap().dead == dead)
            .await;
        assert_eq!(stage.of("1").last().unwrap().text(), Some(value));
    }
    assert_eq!(stage.of("1").len(), 2);
    stage.listener.stop().await;
}
