//! What was heard in a gap: those who have heard it agree on its name, and it makes one lapse.

use super::*;

on_each_server! {
    Scene:
    who_has_heard_more_before_a_canary_has_heard_what_others_have,
    of_nine_gaps_the_oldest_is_forgotten_and_no_other,
    a_key_that_was_found_gone_ends_with_what_was_read_of_it_before,
    a_topic_that_ignores_what_was_never_read_ignores_it_in_gaps,
    a_gap_that_is_older_than_the_history_fires_each_time,
    of_lives_that_wait_the_doubt_of_one_is_the_doubt_of_all,
}

impl Scene {
    /// What becomes of an expiry of `a` that was heard in a gap, so many before this canary, and `found` says where
    /// (the canary, and how many µs later) its key was found gone.
    async fn note_in_gap(&self, canary: u64, back: u32, found: Option<(u64, u64)>) -> RecordedExpiry {
        self.note_in_gap_as(&on(), canary, back, found).await
    }

    async fn note_in_gap_as(
        &self,
        how: &Policy,
        canary: u64,
        back: u32,
        found: Option<(u64, u64)>,
    ) -> RecordedExpiry {
        let gone = found.map(|(canary, micros)| found_gone(place((FIRST + canary, 0)), stamp(micros)));
        let identity = ExpiryIdentity::Gap { node: NodeId::NONE, canary: FIRST + canary, back, gone };
        self.notes(how, &[AnnouncedExpiry { identity, ..self.note_of("a") }]).await[0]
    }
}

async fn who_has_heard_more_before_a_canary_has_heard_what_others_have(scene: &mut Scene) {
    let table = [
        (1000, 1, RecordedExpiry::Lapse),
        (1000, 1, RecordedExpiry::Known),
        (1000, 2, RecordedExpiry::Lapse),
        (1000, 3, RecordedExpiry::Lapse),
        (1000, 2, RecordedExpiry::Known),
        (3000, 1, RecordedExpiry::Lapse),
        (2000, 1, RecordedExpiry::Lapse),
        (1000, 3, RecordedExpiry::Known),
        (2000, 1, RecordedExpiry::Known),
        (3000, 1, RecordedExpiry::Known),
    ];
    for (row, (canary, back, expected)) in table.into_iter().enumerate() {
        assert_eq!(scene.note_in_gap(canary, back, None).await, expected, "row {row}");
    }
    // It says nothing of who was anchored all the while, nor these of it.
    assert_eq!(scene.note("a", 1000, 1).await, RecordedExpiry::Lapse);
    assert_eq!(scene.note_in_gap(1000, 1, None).await, RecordedExpiry::Known);
}

async fn of_nine_gaps_the_oldest_is_forgotten_and_no_other(scene: &mut Scene) {
    for gap in 1..=9 {
        assert_eq!(scene.note_in_gap(gap * 1000, 1, None).await, RecordedExpiry::Lapse);
    }
    for gap in (2..=9).rev() {
        assert_eq!(scene.note_in_gap(gap * 1000, 1, None).await, RecordedExpiry::Known, "gap {gap}");
    }
    assert_eq!(scene.note_in_gap(1000, 1, None).await, RecordedExpiry::Lapse);
}

/// What was read before it was found gone was of a life that has ended.
async fn a_key_that_was_found_gone_ends_with_what_was_read_of_it_before(scene: &mut Scene) {
    for (read, found, taken) in [
        ((500, 0), Some((1000, 9)), true),
        ((1000, 5), Some((1000, 9)), true),
        ((1000, 10), Some((1000, 9)), false),
        ((2000, 0), Some((1000, 9)), false),
        ((500, 0), None, false),
    ] {
        scene.begin().await;
        assert_eq!(scene.read("a", read.0, 0, read.1).await, TrackResult::New);
        scene.clock(FIRST + 1500).await;
        assert_eq!(scene.note_in_gap(1000, 1, found).await, RecordedExpiry::Lapse);
        assert_eq!(scene.length("tracked").await, u64::from(!taken), "{read:?} {found:?}");
        let flags = if taken { 6 } else { 4 };
        assert_eq!(payload(&scene.get("timers", "a").await)[..], [flags, 0], "{read:?} {found:?}");
        if taken {
            assert_eq!(scene.read("a", 500, 0, 1).await, TrackResult::Stale, "it was read before, too");
        }
    }
}

async fn a_topic_that_ignores_what_was_never_read_ignores_it_in_gaps(scene: &mut Scene) {
    let how = with(|topic| topic.untracked = Treatment::Ignore);
    assert_eq!(scene.note_in_gap_as(&how, 1000, 1, Some((1000, 9))).await, RecordedExpiry::Ignored);
    assert_eq!(scene.read("a", 1500, 0, 0).await, TrackResult::New);
    assert_eq!(
        scene.note_in_gap_as(&how, 2000, 1, Some((2000, 9))).await,
        RecordedExpiry::Ignored,
        "it should still live"
    );
    scene.clock(FIRST + 1000).await;
    assert_eq!(scene.note_in_gap_as(&how, 3000, 1, Some((3000, 9))).await, RecordedExpiry::Lapse);
    assert_eq!((scene.length("tracked").await, scene.length("timers").await), (0, 1));
}

/// Older than the history: rather twice than never.
async fn a_gap_that_is_older_than_the_history_fires_each_time(scene: &mut Scene) {
    scene.clock(FIRST + 3 * SPAN).await;
    for page in 0..3 {
        assert_eq!(scene.note("b", page * SPAN, 1).await, RecordedExpiry::Lapse);
    }
    for _ in 0..2 {
        assert_eq!(scene.note_in_gap(1000, 1, None).await, RecordedExpiry::Lapse);
    }
}

/// Two that wait may be one that was heard twice: each says that it may have run before.
async fn of_lives_that_wait_the_doubt_of_one_is_the_doubt_of_all(scene: &mut Scene) {
    for gap_first in [true, false] {
        scene.begin().await;
        assert_eq!(scene.note("a", 1000, 1).await, RecordedExpiry::Lapse);
        for in_gap in [gap_first, !gap_first] {
            let noted =
                if in_gap { scene.note_in_gap(3000, 1, None).await } else { scene.note("a", 2000, 1).await };
            assert_eq!(noted, RecordedExpiry::Lapse);
        }
        let waiting = scene.get("queued", "a").await;
        assert_eq!((&waiting[..5], waiting[22]), (&b"L\0\0\0\x02"[..], 4), "in a gap first: {gap_first}");
    }
}
