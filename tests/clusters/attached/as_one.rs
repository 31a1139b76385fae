//! Slots that move as one, with all their keys, to and fro, while keys expire there and nothing is idle.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keylapse::Expiry;
use keylapse_support::Binary;
use keylapse_testing::LocalNode;

use crate::attached::scene::{Run, Scene, Writer, order};
use crate::reach::{cluster_builder, that_move_slots_as_one};

/// So many keys, most of which lie in slots that move.
const KEYS: usize = 6000;
/// In ms, and up to twice as long.
const LIFE: u64 = 500;
/// From one move to the next.
const PAUSE: Duration = Duration::from_millis(300);

/// Threads that keep all cores busy until it is dropped.
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn on(cores: usize) -> Self {
        let enough = Arc::<AtomicBool>::default();
        for _ in 0..cores {
            let enough = enough.clone();
            std::thread::spawn(move || {
                while !enough.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Self(enough)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Hash tags of slots that are among these.
async fn tags(scene: &Scene, slots: &RangeInclusive<u16>) -> Vec<String> {
    let mut tags = Vec::new();
    for number in 0.. {
        if tags.len() == 20 {
            break;
        }
        let tag = format!("{{{number}}}");
        if slots.contains(&scene.cluster.slot_of(&tag).await.unwrap()) {
            tags.push(tag);
        }
    }
    tags
}

/// Those of the keys that ran more than once, though they were written once.
type Doubled = Vec<(String, Vec<Run>)>;

/// Moves so many slots from this one on, until all keys are written.
async fn to_and_fro(able: &Binary, first: Option<&str>, count: u16, listeners: usize) -> Doubled {
    let cluster = cluster_builder().replicas_per_primary(0).binary(able.path()).start().await.unwrap();
    let scene = Scene::start(cluster, listeners).await;
    let first = match first {
        Some(key) => scene.cluster.slot_of(key).await.unwrap(),
        None => 0,
    };
    let slots = first..=first + count - 1;
    let home = scene.cluster.owner_of_slot(first).await.unwrap();
    let away: LocalNode = scene.cluster.nodes().into_iter().find(|node| *node != home).unwrap();
    let (writer, tags) = (Writer::new(&scene.cluster), tags(&scene, &slots).await);
    let writing = tokio::spawn(write(writer, tags));
    let busy = Busy::on(2);
    let mut moves = 0;
    while !writing.is_finished() {
        for to in [&away, &home] {
            scene.cluster.move_slots_atomically(slots.clone(), to).await.unwrap();
            moves += 1;
            tokio::time::sleep(PAUSE).await; // so that keys expire between two moves, too
        }
    }
    let again = writing.await.unwrap();
    scene.notes.until(KEYS).await;
    drop(busy);
    println!("{}: {moves} moves of {count} slots, {listeners} listeners", able.version());
    let notes = scene.end().await;
    notes.assert_explained(KEYS, &again);
    let mut doubled = notes.doubled();
    doubled.retain(|(key, _)| !again.contains(key));
    doubled
}

/// Answers which may have been written more than once.
async fn write(mut writer: Writer, tags: Vec<String>) -> HashSet<String> {
    let (mut tick, mut again) = (tokio::time::interval(Duration::from_millis(2)), HashSet::new());
    for number in 0..KEYS {
        tick.tick().await;
        let key = key(&tags, number);
        if !writer.write(&key, LIFE + number as u64 * 131 % LIFE).await {
            again.insert(key);
        }
    }
    again
}

/// Most in slots that move, and some elsewhere.
fn key(tags: &[String], number: usize) -> String {
    let tag = if number.is_multiple_of(5) { "" } else { tags[number % tags.len()].as_str() };
    order(format!("{tag}{number}"))
}

/// With one listener and with several.
async fn each(first: Option<&str>, check: impl Fn(usize, Doubled)) {
    for able in that_move_slots_as_one() {
        for (count, listeners) in [(200, 1), (400, 1), (400, 3)] {
            check(listeners, to_and_fro(&able, first, count, listeners).await);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: make test-more SUITE=clusters-long"]
async fn slots_that_move_as_one_to_and_fro_on_a_busy_machine_lose_and_double_nothing() {
    // The canaries of no primary lie there.
    each(None, |_, doubled| assert!(doubled.is_empty(), "{} twice: {:?}", doubled.len(), doubled.first()))
        .await;
}

/// With that slot the canaries of both primaries have other names, which is a gap: for each listener at a moment of its own.
/// So one may hear in its turn what another hears in a gap, and both names fire.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: make test-more SUITE=clusters-long"]
async fn slots_with_that_of_canaries_that_move_to_and_fro_double_only_what_another_listener_hears_in_a_gap() {
    each(Some("{heartbeat/0}"), |listeners, mut doubled| {
        println!("{} twice with {listeners} listeners", doubled.len());
        let is_of_another = |run: &Run| listeners > 1 && run.expiry == Expiry::Ambiguous;
        doubled.retain(|(_, runs)| !runs.iter().any(is_of_another));
        assert!(doubled.is_empty(), "{} without a reason: {:?}", doubled.len(), doubled.first());
    })
    .await;
}
