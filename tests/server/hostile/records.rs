//! Records, states and scores that somebody has tampered with: nothing is lost
//! without a word, nothing runs early, and nobody else is held up.

use std::time::{Duration, SystemTime};

use keylapse::dead_letters::{DeadLetter, DeadReason, Replayed};
use keylapse::timers::TimerPhase;
use keylapse::{ErrorKind, Rescheduled};
use keylapse_support::eventually;
use keylapse_wire::record::{Record, State};
use keylapse_wire::{RepairStep, RepairTarget, Store};
use redis::Value;

use super::scene::{Scene, orders};
use crate::server::support::{PATIENCE, until_dead};

const HOUR: Duration = Duration::from_secs(3600);

impl Scene {
    async fn cmd(&self, words: &[&[u8]]) -> Value {
        self.server.cmd(words).await
    }

    /// Writes the record of a timer anew.
    async fn write_record(&self, id: &str, change: impl FnOnce(Vec<u8>) -> Vec<u8>) {
        let (names, key) = (self.names(), format!("app:order:{id}"));
        let record = self.cmd(&[b"HGET", names.key("timers").as_bytes(), key.as_bytes()]).await;
        let record: Vec<u8> = redis::from_redis_value(record).unwrap();
        self.cmd(&[b"HSET", names.key("timers").as_bytes(), key.as_bytes(), &change(record)]).await;
    }

    async fn write_state(&self, id: &str, state: &[u8]) {
        let key = format!("app:order:{id}");
        self.cmd(&[b"HSET", self.names().key("timer_states").as_bytes(), key.as_bytes(), state]).await;
    }

    async fn write_score(&self, id: &str, score: &str) {
        let key = format!("app:order:{id}");
        self.cmd(&[b"ZADD", self.names().key("due").as_bytes(), score.as_bytes(), key.as_bytes()]).await;
    }

    /// Makes a timer due now, whatever stands in its record.
    async fn make_due(&self, id: &str) {
        self.write_score(id, "1").await;
        self.look().await;
    }

    /// Tells the listener to look.
    async fn look(&self) {
        self.cmd(&[b"SPUBLISH", self.names().wake.as_bytes(), b"w1"]).await;
    }

    async fn phase(&self, id: &str) -> Option<TimerPhase> {
        self.schedule.look_up(&self.topic, [id]).await.unwrap().map(|timer| timer.phase)
    }

    /// Waits until there are so many dead letters; all of them unreadable.
    async fn dead(&self, count: usize) -> Vec<DeadLetter<String>> {
        until_dead(&self.schedule, &self.topic, count as u64).await;
        let letters = self.schedule.dead_letters(&self.topic).page(10).await.unwrap();
        assert!(letters.iter().all(|letter| letter.reason == DeadReason::Unreadable));
        letters
    }

    /// Arms a timer for later, and lets it come due now with another record.
    async fn arm_due(&self, id: &str, change: impl FnOnce(Vec<u8>) -> Vec<u8>) {
        self.arm(id, HOUR).await;
        self.write_record(id, change).await;
        self.make_due(id).await;
    }

    /// One whole round of the slow repair; what it has repaired.
    async fn repair(&self, what: RepairTarget) -> u64 {
        let store = Store::at(&self.server.app_url()).unwrap();
        let step = RepairStep { what, cursor: 0, count: 1000, lease_ms: 30_000 };
        store.repair(&self.names(), step).await.unwrap().repaired
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_cut_short_or_empty_ends_as_a_dead_letter_with_its_bytes() {
    let scene = Scene::new().await;
    let lengths = [0, 1, 8, 9, 16];
    for length in lengths {
        scene.arm_due(&length.to_string(), |record| record[..length].to_vec()).await;
    }
    for letter in &scene.dead(lengths.len()).await {
        let length: usize = std::str::from_utf8(&letter.key[10..]).unwrap().parse().unwrap();
        let left = letter.payload.as_ref().unwrap_err();
        assert_eq!(left.bytes.len(), length, "all that was left is kept");
        assert_eq!(scene.schedule.replay(letter).await.unwrap(), Replayed::Unreadable);
    }
    scene.running.until("it has counted them", |stats| stats.total().dead == 5).await;
    scene.proves_well("well").await;
    scene.tally.assert_each_once(1);
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_makes_no_sense_ends_as_a_dead_letter() {
    let scene = Scene::new().await;
    let states: [&[u8]; 4] = [b"", b"\0", b"\x01garbage", &[1; 24]];
    for (n, state) in states.iter().enumerate() {
        let id = n.to_string();
        scene.arm(&id, HOUR).await;
        scene.write_state(&id, state).await;
        scene.make_due(&id).await;
    }
    let letters = scene.dead(states.len()).await;
    assert!(letters.iter().all(|letter| letter.deadline.is_some()), "the record could still be read");
    scene.proves_well("well").await;
    scene.stop().await;
}

/// Every field at its limit: the handler runs, and the history is an empty one.
#[tokio::test(flavor = "multi_thread")]
async fn a_state_of_extreme_numbers_does_no_harm() {
    let scene = Scene::new().await;
    let states = [
        State { attempt: 0, snoozes: u16::MAX, history: "not json".into(), ..State::waiting(1) },
        State { attempt: u32::MAX, history: vec![0xff; 100].into(), ..State::waiting(1) },
    ];
    for (n, state) in states.iter().enumerate() {
        let id = n.to_string();
        scene.arm(&id, HOUR).await;
        scene.write_record(&id, |record| with_deadline(record, 1)).await;
        scene.write_state(&id, &state.encode()).await;
        scene.make_due(&id).await;
    }
    scene.tally.until(states.len()).await;
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_or_state_of_a_newer_version_is_parked_and_runs_once_it_is_repaired() {
    let scene = Scene::new().await;
    scene.arm("record", HOUR).await;
    scene.write_record("record", |record| [&[2], &record[1..]].concat()).await;
    scene.arm("state", HOUR).await;
    scene.write_state("state", b"\x07whatever").await;
    for id in ["record", "state"] {
        scene.make_due(id).await;
    }
    scene.until("both to be parked", |stats| stats.parked == 2).await;
    let error = scene.schedule.look_up(&scene.topic, ["record"]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WireVersion);
    scene.proves_well("well").await;
    assert_eq!((scene.stats().parked, scene.stats().dead), (2, 0), "put off, not looked at over and over");
    scene.write_record("record", |record| [&[1], &record[1..]].concat()).await;
    scene.cmd(&[b"HDEL", scene.names().key("timer_states").as_bytes(), b"app:order:state"]).await;
    for id in ["record", "state"] {
        let moved = scene.schedule.reschedule(&scene.topic, [id], Duration::ZERO).await.unwrap();
        assert!(matches!(moved, Rescheduled::Rescheduled(_)), "{moved:?}");
    }
    scene.tally.until(3).await;
    scene.tally.assert_each_once(3);
    scene.stop().await;
}

/// The record says when, and the listener must neither run early nor sit on the
/// topic's only place until then.
#[tokio::test(flavor = "multi_thread")]
async fn a_score_made_too_early_is_put_right_and_holds_no_place() {
    let scene = Scene::of(orders().concurrency(1)).await;
    let scores = ["0", "-1", "-inf", "-1e300", "1.5", "1700000000000.9999"];
    for score in scores {
        scene.arm(score, HOUR).await;
        scene.write_score(score, score).await;
    }
    scene.look().await;
    scene.proves_well("now").await;
    scene.until("all to be put right", |stats| stats.repaired == scores.len() as u64).await;
    for score in scores {
        let right = async || {
            let phase = scene.phase(score).await;
            matches!(phase, Some(TimerPhase::Waiting(at)) if at > SystemTime::now() + HOUR / 2)
        };
        eventually(PATIENCE, "its index entry to be put right", right).await;
    }
    scene.tally.assert_each_once(1);
    scene.stop().await;
}

/// Such a score would never come up.
#[tokio::test(flavor = "multi_thread")]
async fn a_score_made_too_late_is_put_right_by_the_slow_repair() {
    let scene = Scene::new().await;
    for score in ["inf", "1e300", "8796093022208"] {
        scene.arm(score, HOUR).await;
        scene.write_record(score, |record| with_deadline(record, 1)).await;
        scene.write_score(score, score).await;
    }
    let _ = scene.arm("later", HOUR).await;
    assert_eq!(scene.repair(RepairTarget::Records).await, 3);
    assert_eq!(scene.repair(RepairTarget::Records).await, 0);
    scene.tally.until(3).await;
    scene.tally.assert_each_once(3);
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_beyond_all_limits_is_unreadable() {
    let scene = Scene::new().await;
    for (id, deadline) in [("1", 1 << 43), ("2", 1 << 63), ("3", u64::MAX)] {
        scene.arm_due(id, |record| with_deadline(record, deadline)).await;
    }
    assert_eq!(scene.dead(3).await.len(), 3);
    scene.proves_well("well").await;
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn index_entries_without_a_record_are_removed_and_counted() {
    let scene = Scene::new().await;
    for n in 0..5 {
        scene.write_score(&n.to_string(), "1").await;
    }
    scene.look().await;
    scene.until("the orphans to be counted", |stats| stats.orphans == 5).await;
    assert_eq!(scene.cmd(&[b"ZCARD", scene.names().key("due").as_bytes()]).await, Value::Int(0));
    scene.proves_well("well").await;
    scene.stop().await;
}

/// What one step of the repair does. It is called here; that a listener calls it by itself, and gets to all
/// partitions, is shown by `lost_index_entries_are_found_in_each_partition_of_each_topic` and by row C11 of
/// the fault matrix.
#[tokio::test(flavor = "multi_thread")]
async fn records_without_an_index_entry_are_found_by_the_slow_repair() {
    let scene = Scene::new().await;
    for id in ["1", "2", "later", "short"] {
        scene.arm(id, HOUR).await;
    }
    for id in ["1", "2"] {
        scene.write_record(id, |record| with_deadline(record, 1)).await;
    }
    scene.write_record("short", |record| record[..5].to_vec()).await;
    scene.cmd(&[b"DEL", scene.names().key("due").as_bytes()]).await;
    assert_eq!(scene.phase("later").await, Some(TimerPhase::Lost));
    assert_eq!(scene.repair(RepairTarget::Records).await, 4);
    scene.tally.until(2).await;
    scene.dead(1).await;
    assert!(
        matches!(scene.phase("later").await, Some(TimerPhase::Waiting(at)) if at > SystemTime::now() + HOUR / 2)
    );
    scene.tally.assert_each_once(2);
    scene.stop().await;
}

/// As a crash leaves it: held by a token that nobody has any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_claims_to_be_held_by_nobody_we_know_runs_again() {
    let scene = Scene::new().await;
    scene.arm("1", HOUR).await;
    let state = State { claimed: true, deadline: 1, ..State::waiting(1) };
    scene.write_state("1", &state.encode()).await;
    scene.make_due("1").await;
    scene.tally.until(1).await;
    assert_eq!(scene.stats().redelivered, 1);
    scene.stop().await;
}

/// What is left of a letter is listed, told from a good one, and can be dropped.
#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_that_cannot_be_read_are_listed_and_can_be_dropped() {
    let scene = Scene::new().await;
    let names = scene.names();
    let bytes: [&[u8]; 4] =
        [b"", b"\x01", b"\x01u\0\0\0\0\0\0\0\0\xff\xff\xff\xffabc", b"\x09newer than we are"];
    for (n, letter) in bytes.iter().enumerate() {
        let member = format!("{n:08}app:order:{n}");
        scene.cmd(&[b"ZADD", names.key("dead").as_bytes(), b"1", member.as_bytes()]).await;
        scene.cmd(&[b"HSET", names.key("dead_letters").as_bytes(), member.as_bytes(), letter]).await;
    }
    let letters = scene.schedule.dead_letters(&scene.topic).page(10).await.unwrap();
    assert_eq!(letters.len(), bytes.len());
    for (letter, bytes) in letters.iter().zip(bytes) {
        assert_eq!(
            (letter.reason, &letter.payload.as_ref().unwrap_err().bytes[..]),
            (DeadReason::Unreadable, bytes)
        );
        assert_eq!(scene.schedule.replay(letter).await.unwrap(), Replayed::Unreadable);
        assert!(scene.schedule.drop_dead_letter(letter).await.unwrap());
    }
    assert_eq!(scene.schedule.dead_letter_counts(&scene.topic).await.unwrap(), (0, 0));
    scene.stop().await;
}

/// A record in its bytes, with another deadline.
fn with_deadline(record: Vec<u8>, deadline: u64) -> Vec<u8> {
    let record = Record::decode(record.into()).unwrap();
    Record { deadline, ..record }.encode().to_vec()
}
