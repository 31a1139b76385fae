//! Slots that move, with keys that are enrolled.

use std::time::Duration;

use keylapse::Expiry;
use keylapse_support::eventually;

use crate::attached::scene::{Scene, Writer, order, three};
use crate::support::PATIENCE;

#[tokio::test(flavor = "multi_thread")]
async fn while_slots_move_no_expiry_is_lost_and_none_doubled_but_in_a_gap() {
    let scene = Scene::start(three().await, 2).await;
    let written = Writer::new(&scene.cluster).stream(1000, Duration::from_millis(8), 500);
    scene.notes.until(200).await;
    for id in 300..400 {
        scene.move_slot_of(&order(id)).await;
    }
    // The writer repeats a write that has no answer in time: such a key may expire twice.
    let again = written.await.unwrap();
    scene.notes.until_all(1000).await;
    let notes = scene.end().await;
    notes.assert_explained(1000, &again);
    // A listener that a busy machine holds up may have one.
    let mut doubled = notes.doubled();
    doubled
        .retain(|(key, runs)| !again.contains(key) && runs.iter().all(|run| run.expiry != Expiry::Ambiguous));
    assert!(doubled.is_empty(), "{doubled:?}");
}

/// A key that lived so long when it was enrolled at one server, and is at another now, where changes are not heard.
async fn moved(ms: u64) -> Scene {
    let scene = Scene::start(three().await, 1).await;
    Writer::new(&scene.cluster).write(&order("moved"), ms).await;
    scene.until_enrolled(1).await;
    scene.move_slot_of(&order("moved")).await;
    scene.at_owner(&order("moved"), &["CONFIG", "SET", "notify-keyspace-events", "Ex"]).await;
    scene
}

/// What was read at one server is judged by what both have said since: nothing, so the key was taken away.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_deleted_after_it_has_moved_does_not_fire() {
    // Unheard: that it is gone shows when it is due.
    let scene = moved(4000).await;
    scene.at_owner(&order("moved"), &["DEL", &order("moved")]).await;
    eventually(PATIENCE, "it to be forgotten", async || scene.enrolled().await == 0).await;
    assert_eq!(scene.counted().vanished, 1);
    assert!(scene.end().await.all().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_extended_after_it_has_moved_fires_once_and_later() {
    let scene = moved(2500).await;
    scene.at_owner(&order("moved"), &["PEXPIRE", &order("moved"), "4000"]).await;
    scene.notes.until(1).await;
    let notes = scene.end().await;
    notes.assert_each_once(1);
    let run = notes.all()[&order("moved")][0].clone();
    assert_eq!((run.expiry, run.value.as_deref()), (Expiry::Announced, Some(order("moved").as_bytes())));
}

/// No partition lies in its slot, so that no call is sent on and no wake-up ends: only the key itself tells of the move.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_moves_alone_to_a_node_that_is_new_fires_once_and_soon() {
    let scene = Scene::start(three().await, 1).await;
    let new = scene.cluster.add_node().await.unwrap();
    Writer::new(&scene.cluster).write(&order("moved"), 2500).await;
    scene.until_enrolled(1).await;
    let slot = scene.cluster.slot_of(&order("moved")).await.unwrap();
    scene.cluster.move_slot(slot, &new).await.unwrap();
    scene.notes.until(1).await;
    let notes = scene.end().await;
    notes.assert_each_once(1);
    let late = notes.all()[&order("moved")][0].late;
    assert!(late < 10_000, "{late} ms: when all nodes are asked for their map anyway");
}

/// Its reading has the place of the first, and its end that of the second: whoever has heard both still knows.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_expires_where_it_was_not_read_fires_once_and_is_not_looked_at_for_ever() {
    let scene = Scene::start(three().await, 2).await;
    let mut writer = Writer::new(&scene.cluster);
    writer.write_all((0..50).map(|id| order(format!("{{a}}{id}"))), 2500).await;
    scene.until_enrolled(50).await;
    scene.move_slot_of("{a}").await;
    scene.notes.until(50).await;
    eventually(PATIENCE, "all to be forgotten", async || scene.enrolled().await == 0).await;
    let notes = scene.end().await;
    notes.assert_each_once(50);
    assert!(notes.all().values().flatten().all(|run| run.expiry == Expiry::Announced));
}
