//! What was noted of a key, as ranges: each begins with the anchor of who has noted it.

use std::collections::BTreeSet;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

on_each_server! {
    Scene:
    a_note_speaks_for_all_that_its_listener_has_heard,
    of_nine_ranges_the_two_oldest_become_one,
    random_listeners_make_one_lapse_of_each_expiry,
}

/// Ranges of one key that are kept.
const RANGES: u64 = 8;

impl Scene {
    /// What becomes of an expiry that is heard by who was anchored by this canary, both given from the first on.
    async fn note_since(&self, since: u64, canary: u64, count: u32) -> RecordedExpiry {
        let identity = super::since(FIRST + since, (FIRST + canary, count));
        self.notes(&on(), &[AnnouncedExpiry { identity, ..self.note_of("a") }]).await[0]
    }
}

async fn a_note_speaks_for_all_that_its_listener_has_heard(scene: &mut Scene) {
    let table = [
        // Two listeners hear everything since the first canary, one is late.
        (0, 0, 1, RecordedExpiry::Lapse),
        (0, 2000, 1, RecordedExpiry::Lapse),
        (0, 1000, 1, RecordedExpiry::Known),
        (0, 2000, 1, RecordedExpiry::Known),
        // A third begins behind an expiry that the late one alone has heard.
        (4000, 4000, 2, RecordedExpiry::Lapse),
        (4000, 4000, 1, RecordedExpiry::Known),
        (0, 2000, 2, RecordedExpiry::Lapse),
        (0, 3000, 1, RecordedExpiry::Lapse),
        (0, 4000, 1, RecordedExpiry::Known),
        (0, 4000, 3, RecordedExpiry::Lapse),
        (4000, 4000, 3, RecordedExpiry::Known),
        // Whoever comes later speaks for nothing before.
        (6000, 6000, 1, RecordedExpiry::Lapse),
        (5000, 5000, 1, RecordedExpiry::Lapse),
        (5000, 6000, 1, RecordedExpiry::Known),
    ];
    for (row, (since, canary, count, expected)) in table.into_iter().enumerate() {
        assert_eq!(scene.note_since(since, canary, count).await, expected, "row {row}");
    }
}

/// Three listeners, one of which hears everything late: by three seconds.
#[tokio::test]
async fn three_thousand_notes_of_one_key_cost_the_same_at_the_end_as_at_the_beginning() {
    const CANARIES: u64 = 600;
    const LATE: u64 = 3;
    let scene = Scene::alone().await;
    let (mut lengths, mut costs, mut notes) = (BTreeSet::new(), Vec::new(), 0);
    for round in 0..CANARIES {
        let before = scene.calls().await;
        // One is anchored from the beginning, one from the tenth canary, one from the twentieth.
        for (since, late) in [(0, LATE), (10, 0), (20, 0)] {
            let Some(canary) = round.checked_sub(late).filter(|canary| *canary >= since) else { continue };
            for count in 1..=2 {
                scene.note_since(since * 1000, canary * 1000, count).await;
                notes += 1;
            }
        }
        let mut calls = scene.calls().await;
        calls.iter_mut().for_each(|(name, calls)| *calls -= before.get(name).copied().unwrap_or_default());
        calls.retain(|name, calls| *calls > 0 && name != "info");
        if round > 30 {
            lengths.insert(scene.get("expiry_history", "a").await.len());
            costs.push(calls);
        }
    }
    assert!(notes > 3000, "{notes}");
    assert_eq!(lengths.len(), 1, "bytes: {lengths:?}");
    // The pages turn in between.
    assert_eq!(costs[..100], costs[costs.len() - 100..]);
    assert_eq!(
        scene.length("expiry_history").await + scene.length("expiry_history_old").await,
        1,
        "it lies on one page"
    );
}

/// And costs what lies between them, for a listener that is late by as many gaps of all the others.
async fn of_nine_ranges_the_two_oldest_become_one(scene: &mut Scene) {
    for range in 0..RANGES {
        let canary = range * 10_000;
        assert_eq!(scene.note_since(canary, canary, 1).await, RecordedExpiry::Lapse);
    }
    let last = (RANGES - 1) * 10_000;
    assert_eq!(
        scene.note_since(0, 1000, 1).await,
        RecordedExpiry::Lapse,
        "up to eight nothing is taken for noted"
    );
    assert_eq!(scene.note_since(last + 10_000, last + 10_000, 1).await, RecordedExpiry::Lapse);
    assert_eq!(scene.note_since(0, 2000, 1).await, RecordedExpiry::Known, "it is between the two oldest");
    assert_eq!(scene.note_since(0, 10_000, 1).await, RecordedExpiry::Known);
    assert_eq!(scene.note_since(0, 10_000, 2).await, RecordedExpiry::Lapse, "what is behind them is not");
    assert_eq!(scene.note_since(0, 15_000, 1).await, RecordedExpiry::Lapse);
    assert_eq!(scene.note_since(last, last, 2).await, RecordedExpiry::Lapse);
}

/// A listener as it may be: it hears on, has a gap, or dies and is another.
#[derive(Clone, Copy, Default)]
struct Hearer {
    /// What it hears next.
    at: usize,
    /// The canary since which it heard everything; none in a gap.
    since: Option<u64>,
}

/// What the server has published of a key.
#[derive(Clone, Copy)]
enum Published {
    Canary(u64),
    Expired((u64, u32)),
}

/// The stream of one key: some canaries, each with up to three expiries behind it.
fn stream(random: &mut StdRng) -> Vec<Published> {
    let mut stream = Vec::new();
    for canary in 0..RANGES {
        stream.push(Published::Canary(canary * 1000));
        let expiries = random.random_range(0..4);
        stream.extend((1..=expiries).map(|count| Published::Expired((canary * 1000, count))));
    }
    stream
}

/// Listeners with lags, gaps and deaths, of many keys at a time. Nothing is taken for noted that was not, and
/// nothing that was for new: as few canaries as there are make no more ranges than are kept.
async fn random_listeners_make_one_lapse_of_each_expiry(scene: &mut Scene) {
    const KEYS: usize = 500;
    const LISTENERS: usize = 3;
    let mut random = StdRng::seed_from_u64(13);
    let streams: Vec<_> = (0..KEYS).map(|_| stream(&mut random)).collect();
    let mut hearers = vec![[Hearer::default(); LISTENERS]; KEYS];
    let mut noted = vec![BTreeSet::new(); KEYS];
    let (mut lapses, mut known) = (0, 0);
    while (0..KEYS).any(|key| hearers[key].iter().any(|hearer| hearer.at < streams[key].len())) {
        let (mut notes, mut of) = (Vec::new(), Vec::new());
        for key in 0..KEYS {
            let hearer = &mut hearers[key][random.random_range(0..LISTENERS)];
            let Some(event) = streams[key].get(hearer.at) else { continue };
            hearer.at += 1;
            if random.random_bool(0.125) {
                hearer.since = None;
                hearer.at += random.random_range(0..3);
                continue;
            }
            match (*event, hearer.since) {
                (Published::Canary(number), _) => _ = hearer.since.get_or_insert(number),
                (Published::Expired((canary, count)), Some(since)) => {
                    let identity = super::since(FIRST + since, (FIRST + canary, count));
                    notes.push(AnnouncedExpiry { identity, ..scene.note_of(&key.to_string()) });
                    of.push((key, (canary, count)));
                }
                (Published::Expired(_), None) => {}
            }
        }
        if notes.is_empty() {
            continue;
        }
        for ((key, at), reply) in of.into_iter().zip(scene.notes(&on(), &notes).await) {
            let expected = if noted[key].insert(at) { RecordedExpiry::Lapse } else { RecordedExpiry::Known };
            assert_eq!(reply, expected, "{at:?} of key {key}");
            if expected == RecordedExpiry::Lapse { lapses += 1 } else { known += 1 }
        }
    }
    assert!(lapses > 2000 && known > 2000, "{lapses} {known}");
}
