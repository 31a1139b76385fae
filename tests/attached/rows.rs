//! Each row of the decision table: what a writer does to a key, and what fires.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use keylapse::{Attached, Backoff, Done, Expired, Expiry, Failure, Lapse};
use keylapse_support::{Binary, Server, Version, eventually};
use tokio::sync::Semaphore;

use crate::scene::{
    ALL_FLAGS, Harness, Notes, PATIENCE, lives, now, order, orders, orders_with_values, servers, until_time,
};

/// Long enough to be enrolled and changed before it is over.
const WHILE: u64 = 2000;

/// A test for each row, with a harness that is begun so.
macro_rules! rows {
    (heard: $($row:ident),* $(,)?) => {
        rows!(with_all_flags = Harness::hearing(crate::scene::ALL_FLAGS); $($row),*);
        rows!(with_ex_alone = Harness::hearing("Ex"); $($row),*);
    };
    ($module:ident = $begin:expr; $($row:ident),* $(,)?) => {
        mod $module {
            use super::Harness;

            $(#[tokio::test]
            async fn $row() {
                let harness = $begin.await;
                super::$row(&harness).await;
                harness.listener.stop().await;
            })*
        }
    };
}

rows![heard:
    an_extended_key_fires_at_its_new_deadline_alone,
    a_key_that_is_extended_again_and_again_fires_once,
    a_key_that_is_held_by_a_pause_fires_once_after_it,
    a_persisted_key_does_not_fire,
    a_persisted_key_that_expires_later_after_all_fires_then,
    a_key_that_is_overwritten_without_a_deadline_does_not_fire,
    a_key_that_is_overwritten_with_another_deadline_fires_then,
    a_key_that_is_overwritten_with_an_earlier_deadline_fires_then,
    a_key_whose_value_alone_changes_fires_with_the_new_one,
    a_key_that_is_renamed_to_another_topic_does_not_fire,
    a_renamed_key_fires_under_its_new_name_alone,
    a_key_that_is_renamed_onto_a_watched_one_fires_as_that_one,
    a_copy_fires_beside_its_original,
    a_key_that_is_moved_to_another_database_does_not_fire,
    a_restored_key_fires,
    a_deadline_that_a_reader_changes_counts,
    deleted_keys_do_not_fire,
    a_deleted_key_that_is_written_again_fires_as_the_new_one,
    evicted_keys_do_not_fire,
    keys_that_are_flushed_do_not_fire_and_later_ones_do,
];

// The rows that can be told without hearing anything.
rows![with_no_flags = Harness::blind();
    a_key_that_is_extended_again_and_again_fires_once,
    a_persisted_key_does_not_fire,
    a_persisted_key_that_expires_later_after_all_fires_then,
    a_key_that_is_overwritten_without_a_deadline_does_not_fire,
    a_key_that_is_overwritten_with_an_earlier_deadline_fires_then,
    a_copy_fires_beside_its_original,
    a_restored_key_fires,
    keys_that_are_flushed_do_not_fire_and_later_ones_do,
];

async fn an_extended_key_fires_at_its_new_deadline_alone(harness: &Harness) {
    let first = harness.enrol("1", "a sofa", WHILE).await;
    let second = first + WHILE;
    harness.cmd(&["PEXPIREAT", &order("1"), &second.to_string()]).await;
    harness.passes_without("1", first, second).await;
    let run = harness.fires_once("1", "a sofa", second).await;
    assert_eq!(run.expiry, Expiry::Announced);
}

async fn a_key_that_is_extended_again_and_again_fires_once(harness: &Harness) {
    for id in ["1", "2", "3", "4", "5"] {
        let mut deadline = harness.enrol(id, "a sofa", WHILE).await;
        let mut lives = true;
        for _ in 0..4 {
            until_time(deadline - 1000).await;
            deadline += 1000;
            let extended = harness.cmd(&["PEXPIREAT", &order(id), &deadline.to_string()]).await;
            lives &= extended == redis::Value::Int(1);
        }
        if lives {
            harness.fires_once(id, "a sofa", deadline).await;
            return;
        }
        // On a machine that is too busy to be in time, another key is tried.
    }
    panic!("no key was extended in time");
}

async fn a_key_that_is_held_by_a_pause_fires_once_after_it(harness: &Harness) {
    let deadline = harness.enrol("1", "a sofa", WHILE).await;
    until_time(deadline - 500).await;
    let over = now() + 1000;
    harness.cmd(&["CLIENT", "PAUSE", "1000", "WRITE"]).await;
    let run = harness.fires_once("1", "a sofa", deadline).await;
    assert!(run.at >= over, "while the server was paused: {run:?}");
}

async fn a_persisted_key_does_not_fire(harness: &Harness) {
    let deadline = harness.enrol("1", "a sofa", WHILE).await;
    harness.cmd(&["PERSIST", &order("1")]).await;
    harness.pass(deadline).await;
    harness.is_forgotten("1").await;
}

async fn a_persisted_key_that_expires_later_after_all_fires_then(harness: &Harness) {
    let deadline = harness.enrol("1", "a sofa", WHILE).await;
    harness.cmd(&["PERSIST", &order("1")]).await;
    harness.pass(deadline).await;
    harness.until_forgotten("1").await;
    let later = now() + WHILE;
    harness.cmd(&["PEXPIREAT", &order("1"), &later.to_string()]).await;
    harness.until_watched("1", later).await;
    harness.fires_once("1", "a sofa", later).await;
}

async fn a_key_that_is_overwritten_without_a_deadline_does_not_fire(harness: &Harness) {
    let deadline = harness.enrol("1", "a sofa", WHILE).await;
    harness.cmd(&["SET", &order("1"), "a lamp"]).await;
    harness.pass(deadline).await;
    harness.is_forgotten("1").await;
}

async fn a_key_that_is_overwritten_with_another_deadline_fires_then(harness: &Harness) {
    harness
        .fires_with_its_new_value(async |id| {
            let first = harness.enrol(id, "a sofa", WHILE).await;
            let second = first + WHILE;
            harness.write_until(id, "a lamp", second).await;
            let written = now();
            harness.passes_without(id, first, second).await;
            (second, written)
        })
        .await;
}

async fn a_key_that_is_overwritten_with_an_earlier_deadline_fires_then(harness: &Harness) {
    let id = harness.fires_with_its_new_value(async |id| {
        harness.enrol(id, "a sofa", 3 * WHILE).await;
        let early = now() + WHILE;
        harness.write_until(id, "a lamp", early).await;
        let written = now();
        harness.until_watched(id, early).await;
        (early, written)
    });
    let id = id.await;
    harness.pass(now() + 2 * WHILE).await;
    assert_eq!(harness.of(id).len(), 1);
}

async fn a_key_whose_value_alone_changes_fires_with_the_new_one(harness: &Harness) {
    harness
        .fires_with_its_new_value(async |id| {
            let deadline = harness.enrol(id, "a sofa", WHILE).await;
            harness.cmd(&["SET", &order(id), "a lamp", "KEEPTTL"]).await;
            (deadline, now())
        })
        .await;
}

async fn a_key_that_is_renamed_to_another_topic_does_not_fire(harness: &Harness) {
    let deadline = harness.enrol("1", "a sofa", WHILE).await;
    harness.cmd(&["RENAME", &order("1"), "app:other:1"]).await;
    harness.pass(deadline).await;
    harness.until_forgotten("1").await;
    assert!(harness.of("1").is_empty() && harness.notes.of("app:other:1").is_empty());
}

async fn a_renamed_key_fires_under_its_new_name_alone(harness: &Harness) {
    let deadline = harness.enrol("1", "a sofa", WHILE).await;
    harness.cmd(&["RENAME", &order("1"), &order("2")]).await;
    harness.until_watched("2", deadline).await;
    harness.fires_once("2", "a sofa", deadline).await;
    harness.is_forgotten("1").await;
}

async fn a_key_that_is_renamed_onto_a_watched_one_fires_as_that_one(harness: &Harness) {
    let later = harness.enrol("2", "a lamp", 3 * WHILE).await;
    let deadline = harness.enrol("1", "a sofa", WHILE).await;
    harness.cmd(&["RENAME", &order("1"), &order("2")]).await;
    harness.until_watched("2", deadline).await;
    harness.fires_once("2", "a sofa", deadline).await;
    harness.pass(later).await;
    assert!(harness.of("1").is_empty() && harness.of("2").len() == 1);
}

async fn a_copy_fires_beside_its_original(harness: &Harness) {
    let deadline = harness.enrol("1", "a sofa", WHILE).await;
    harness.cmd(&["COPY", &order("1"), &order("2")]).await;
    harness.until_watched("2", deadline).await;
    harness.fires_once("1", "a sofa", deadline).await;
    harness.fires_once("2", "a sofa", deadline).await;
}

async fn a_key_that_is_moved_to_another_database_does_not_fire(harness: &Harness) {
    let deadline = harness.enrol("1", "a sofa", WHILE).await;
    harness.cmd(&["MOVE", &order("1"), "1"]).await;
    harness.pass(deadline).await;
    harness.is_forgotten("1").await;
}

async fn a_restored_key_fires(harness: &Harness) {
    let deadline = harness.restore("1", "a sofa", WHILE).await;
    harness.fires_once("1", "a sofa", deadline).await;
}

async fn a_deadline_that_a_reader_changes_counts(harness: &Harness) {
    let first = harness.enrol_and(&["1", "2"], "a sofa", WHILE, async || {}).await;
    let second = first + WHILE;
    harness.cmd(&["GETEX", &order("1"), "PXAT", &second.to_string()]).await;
    harness.cmd(&["GETEX", &order("2"), "PERSIST"]).await;
    harness.passes_without("1", first, second).await;
    harness.fires_once("1", "a sofa", second).await;
    assert!(harness.of("2").is_empty(), "{:?}", harness.of("2"));
}

async fn deleted_keys_do_not_fire(harness: &Harness) {
    let deadline = harness.enrol_and(&["1", "2", "3"], "a sofa", WHILE, async || {}).await;
    harness.cmd(&["DEL", &order("1")]).await;
    harness.cmd(&["UNLINK", &order("2")]).await;
    harness.cmd(&["GETDEL", &order("3")]).await;
    harness.pass(deadline).await;
    for id in ["1", "2", "3"] {
        harness.is_forgotten(id).await;
    }
    assert_eq!(harness.listener.attached().recovered, 0);
}

async fn a_deleted_key_that_is_written_again_fires_as_the_new_one(harness: &Harness) {
    let first = harness.enrol("1", "a sofa", WHILE).await;
    harness.cmd(&["DEL", &order("1")]).await;
    let second = first + WHILE;
    harness.write_until("1", "a lamp", second).await;
    harness.passes_without("1", first, second).await;
    harness.fires_once("1", "a lamp", second).await;
}

/// Lets the server evict all that has a deadline.
pub(crate) async fn evict(server: &Server, key: &str) {
    for (name, value) in [("maxmemory-policy", "volatile-ttl"), ("maxmemory", "1")] {
        server.cmd(&["CONFIG", "SET", name, value]).await;
    }
    eventually(PATIENCE, "the eviction", async || server.cmd(&["EXISTS", key]).await == redis::Value::Int(0))
        .await;
    for (name, value) in [("maxmemory", "0"), ("maxmemory-policy", "noeviction")] {
        server.cmd(&["CONFIG", "SET", name, value]).await;
    }
}

async fn evicted_keys_do_not_fire(harness: &Harness) {
    let evict = async || evict(&harness.server, &order("1")).await;
    let deadline = harness.enrol_and(&["1"], "a sofa", 2 * WHILE, evict).await;
    harness.pass(deadline).await;
    harness.is_forgotten("1").await;
    let stats = harness.listener.attached();
    assert_eq!((stats.vanished, stats.recovered), (1, 0), "{stats:?}");
}

async fn keys_that_are_flushed_do_not_fire_and_later_ones_do(harness: &Harness) {
    let deadline = harness.enrol("1", "a sofa", WHILE).await;
    harness.cmd(&["FLUSHDB"]).await;
    harness.pass(deadline).await;
    assert!(harness.of("1").is_empty(), "{:?}", harness.of("1"));
    let deadline = harness.enrol("1", "a lamp", WHILE).await;
    harness.fires_once("1", "a lamp", deadline).await;
}

/// On one of the servers, with all flags.
async fn on(binary: Binary) -> (Harness, Version) {
    let version = binary.version();
    println!("{version}");
    let server = Server::builder().binary(binary).config("notify-keyspace-events", ALL_FLAGS).start().await;
    (Harness::on(server, orders_with_values(), Notes::handler).await, version)
}

/// `PEXPIREAT` in the past is a deletion to Redis, and an expiry to Valkey since 8.1.
#[tokio::test]
async fn a_deadline_in_the_past_is_what_the_server_says_it_is() {
    for binary in servers() {
        let (harness, version) = on(binary).await;
        let expires = version.is_valkey && version.number >= (8, 1, 0);
        let later = harness.enrol("1", "a sofa", 60_000).await;
        harness.cmd(&["PEXPIREAT", &order("1"), &(now() - 1000).to_string()]).await;
        harness.until_forgotten("1").await;
        harness.pass(now()).await;
        let runs = harness.of("1");
        assert_eq!(runs.len(), usize::from(expires), "{version}: {runs:?}");
        for run in runs {
            assert_eq!((run.text(), run.expiry), (Some("a sofa"), Expiry::Announced), "{version}: {run:?}");
            assert!(run.deadline < later && run.deadline <= run.at, "{version}: {run:?}");
        }
        harness.listener.stop().await;
    }
}

/// Redis deletes such a key when it is next read, and Valkey since 8.0 at once: an expiry to both.
#[tokio::test]
async fn a_key_that_is_overwritten_with_a_deadline_in_the_past_fires() {
    for binary in servers() {
        let (harness, version) = on(binary).await;
        let at_once = version.is_valkey && version.number >= (8, 0, 0);
        harness.enrol("1", "a sofa", 60_000).await;
        harness.write_until("1", "a lamp", now() - 1000).await;
        let run = harness.only("1").await;
        assert_eq!(run.expiry, Expiry::Announced, "{version}: {run:?}");
        // The value that was remembered; the newer one was never there to be read.
        assert_eq!(run.text(), Some("a sofa"), "{version}: {run:?}");

        harness.write_until("2", "a lamp", now() - 1000).await;
        harness.pass(now()).await;
        let runs = harness.of("2");
        assert_eq!(runs.len(), usize::from(!at_once), "{version}: {runs:?}");
        harness.listener.stop().await;
    }
}

/// Longer than anybody waits for a canary or an answer. Found gone before it is heard to expire, in a gap,
/// it may fire twice, and the second time says so.
#[tokio::test]
async fn a_key_that_is_held_by_a_long_pause_fires_after_it() {
    let harness = Harness::hearing(ALL_FLAGS).await;
    let deadline = harness.enrol("1", "a sofa", WHILE).await;
    until_time(deadline - 500).await;
    let over = now() + 9000;
    harness.cmd(&["CLIENT", "PAUSE", "9000", "WRITE"]).await;
    eventually(PATIENCE, "the key to fire", async || !harness.of("1").is_empty()).await;
    harness.pass(now()).await;
    let runs = harness.of("1");
    assert!(runs[0].at >= over && runs[0].deadline == deadline, "{runs:?}");
    assert!(runs.len() <= 2 && runs[1..].iter().all(|run| run.expiry == Expiry::Ambiguous), "{runs:?}");
    harness.listener.stop().await;
}

#[tokio::test]
async fn a_key_that_is_written_again_while_its_handler_runs_runs_after_it() {
    let (gate, running, most) =
        (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (waits, count, peak) = (gate.clone(), running.clone(), most.clone());
    let harness = Harness::with(ALL_FLAGS, orders_with_values(), |notes| {
        let notes = notes.clone();
        move |lapse: Lapse<Expired<Bytes>>| {
            let (notes, gate, running, most) = (notes.clone(), waits.clone(), count.clone(), peak.clone());
            async move {
                notes.note(&lapse);
                if lapse.key().ends_with(b":1") {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    gate.acquire().await.unwrap().forget();
                    running.fetch_sub(1, Ordering::SeqCst);
                }
                Ok::<_, Failure>(Done)
            }
        }
    })
    .await;
    harness.enrol("1", "a sofa", WHILE).await;
    harness.notes.until(1).await;
    let second = harness.enrol("1", "a lamp", WHILE).await;
    eventually(PATIENCE, "the second life", async || lives(&harness.server, &order("1")).await == 1).await;
    harness.pass(second).await;
    assert_eq!(harness.of("1").len(), 1, "one at a time");
    gate.add_permits(10);
    eventually(PATIENCE, "the second run", async || harness.of("1").len() == 2).await;
    harness.pass(now()).await;
    let runs = harness.of("1");
    assert_eq!(runs.iter().map(|run| run.text().unwrap()).collect::<Vec<_>>(), ["a sofa", "a lamp"]);
    assert!(runs.iter().all(|run| run.attempt == 1 && run.expiry == Expiry::Announced), "{runs:?}");
    assert!(runs[0].id != runs[1].id && runs[1].deadline == second, "{runs:?}");
    assert_eq!(most.load(Ordering::SeqCst), 1);
    harness.listener.stop().await;
}

#[tokio::test]
async fn lives_that_end_while_a_retry_waits_run_after_it_each_once() {
    let topic = Attached::new(orders().retry(Backoff::fixed(Duration::from_secs(7)))).keep_values(1024);
    let first = |notes: &Notes, _: &Lapse<_>| notes.of(&order("1")).is_empty();
    let harness = Harness::with(ALL_FLAGS, topic, |notes| notes.failing_if(first)).await;
    harness.enrol("1", "life 1", 1000).await;
    harness.notes.until(1).await;
    for life in 2..=4 {
        harness.write("1", &format!("life {life}"), 300).await;
        let behind = life - 1;
        eventually(PATIENCE, "the life to end", async || lives(&harness.server, &order("1")).await == behind)
            .await;
    }
    assert_eq!(harness.of("1").len(), 1, "the retry came too early for the test to mean anything");
    eventually(PATIENCE, "all of them", async || harness.of("1").len() >= 5).await;
    harness.pass(now()).await;
    let runs = harness.of("1");
    let attempts: Vec<_> = runs.iter().map(|run| run.attempt).collect();
    assert_eq!(attempts, [1, 2, 1, 1, 1], "{runs:?}");
    assert!(runs[..2].iter().all(|run| run.text() == Some("life 1")), "{runs:?}");
    assert!(runs[2..].iter().all(|run| run.text() == Some("life 4")), "the latest value is kept: {runs:?}");
    let ids: std::collections::HashSet<_> = runs.iter().map(|run| &run.id).collect();
    assert_eq!(harness.listener.stats.topic("orders").unwrap().superseded, 0);
    assert_eq!(ids.len(), 4, "a retry has the id of its life: {runs:?}");
    harness.listener.stop().await;
}
