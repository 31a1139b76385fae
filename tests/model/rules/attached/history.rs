//! What is remembered of the expiries of a key, and for how long.

use super::*;

on_each_server! {
    Scene:
    what_was_noted_is_known_by_the_highest_count_behind_each_canary,
    a_recovery_takes_up_one_later_note,
    each_of_several_recoveries_takes_up_one,
    what_was_read_before_an_expiry_does_not_come_back,
    what_is_forgotten_is_forgotten_as_of_its_place_and_stamp,
    memory_is_forgotten_page_by_page_and_never_the_newest_two,
    without_a_canary_memory_is_forgotten_by_the_time_of_the_checks,
    pages_turn_by_the_clock_and_not_by_numbers_that_it_has_not_reached,
}

async fn what_was_noted_is_known_by_the_highest_count_behind_each_canary(scene: &mut Scene) {
    let table = [
        (0, 1, RecordedExpiry::Lapse),
        (0, 1, RecordedExpiry::Known),
        (1000, 1, RecordedExpiry::Lapse),
        // Whoever is late, but unbroken, has heard another one before that canary.
        (0, 2, RecordedExpiry::Lapse),
        (0, 2, RecordedExpiry::Known),
        (0, 1, RecordedExpiry::Known),
        (1000, 1, RecordedExpiry::Known),
        (500, 1, RecordedExpiry::Lapse),
        (500, 1, RecordedExpiry::Known),
    ];
    for (row, (canary, count, expected)) in table.into_iter().enumerate() {
        assert_eq!(scene.note("a", canary, count).await, expected, "row {row}");
    }
    assert_eq!(scene.note("b", 0, 1).await, RecordedExpiry::Lapse, "keys have nothing to do with each other");
}

async fn a_recovery_takes_up_one_later_note(scene: &mut Scene) {
    for (key, notes) in [
        (
            "one",
            &[
                (0, 1, RecordedExpiry::Recovered),
                (0, 2, RecordedExpiry::Lapse),
                (0, 2, RecordedExpiry::Known),
            ][..],
        ),
        ("late", &[(500, 1, RecordedExpiry::Recovered), (0, 1, RecordedExpiry::Lapse)]),
        ("before", &[(0, 0, RecordedExpiry::Lapse), (0, 1, RecordedExpiry::Recovered)]),
        ("at", &[(2000, 0, RecordedExpiry::Recovered), (2000, 1, RecordedExpiry::Lapse)]),
        (
            "after",
            &[
                (2000, 1, RecordedExpiry::Lapse),
                (3000, 1, RecordedExpiry::Lapse),
                (1000, 1, RecordedExpiry::Recovered),
            ],
        ),
    ] {
        scene.clock(FIRST).await;
        assert_eq!(scene.read(key, 0, 0, 0).await, TrackResult::New);
        scene.clock(FIRST + 2000).await;
        let watch = scene.watch(key).await;
        assert!(scene.judge(&watch, (FIRST + 2000, 0), stamp(2_000_000), fire()).await);
        for (canary, count, expected) in notes {
            assert_eq!(scene.note(key, *canary, *count).await, *expected, "{key}: {canary} {count}");
        }
    }
}

async fn each_of_several_recoveries_takes_up_one(scene: &mut Scene) {
    for round in 0..3 {
        let now = 2000 * round;
        scene.clock(FIRST + now).await;
        assert_eq!(scene.read_until("a", FIRST + now + 1000, now, 0, now * 1000).await, TrackResult::New);
        scene.clock(FIRST + now + 1500).await;
        let watch = scene.watch("a").await;
        assert!(scene.judge(&watch, (FIRST + now + 1500, 0), stamp((now + 1500) * 1000), fire()).await);
    }
    let notes = [(2000, 1), (0, 1), (4000, 1)];
    for (canary, count) in notes {
        assert_eq!(scene.note("a", canary, count).await, RecordedExpiry::Recovered, "{canary}");
    }
    assert_eq!(scene.note("a", 4000, 2).await, RecordedExpiry::Lapse);
}

async fn what_was_read_before_an_expiry_does_not_come_back(scene: &mut Scene) {
    assert_eq!(scene.read("a", 0, 0, 0).await, TrackResult::New);
    assert_eq!(scene.note("a", 1000, 1).await, RecordedExpiry::Lapse);
    assert_eq!(scene.read("a", 0, 0, 9).await, TrackResult::Stale);
    assert_eq!(scene.read("a", 1000, 0, 9).await, TrackResult::Stale);
    assert_eq!(scene.read("a", 1000, 1, 9).await, TrackResult::New);
    // A late note of the life before leaves the next one alone.
    assert_eq!(scene.note("a", 500, 1).await, RecordedExpiry::Lapse);
    assert_eq!(scene.read("a", 1000, 1, 9).await, TrackResult::Known);
}

async fn what_is_forgotten_is_forgotten_as_of_its_place_and_stamp(scene: &mut Scene) {
    assert_eq!(scene.read("a", 0, 0, 10).await, TrackResult::New);
    scene.clock(FIRST + 1500).await;
    let watch = scene.watch("a").await;
    assert!(scene.judge(&watch, (FIRST, 0), stamp(20), CheckAction::Forget).await);
    assert!(!scene.judge(&watch, (FIRST, 0), stamp(20), CheckAction::Forget).await, "it is gone");
    assert_eq!(scene.read("a", 0, 0, 15).await, TrackResult::Stale);
    assert_eq!(scene.read("a", 0, 0, 25).await, TrackResult::New);
    assert!(!scene.judge(&watch, (FIRST, 0), stamp(30), fire()).await, "another was looked at");
    assert_eq!(scene.length("timers").await, 0);
    // The same where a reading says that there is no deadline any more.
    assert_eq!(scene.read_until("a", 0, 0, 0, 40).await, TrackResult::Forgotten);
    assert_eq!(scene.read("a", 0, 0, 35).await, TrackResult::Stale);
    assert_eq!(scene.read("a", 0, 0, 45).await, TrackResult::New);
}

async fn memory_is_forgotten_page_by_page_and_never_the_newest_two(scene: &mut Scene) {
    scene.clock(FIRST + 3 * SPAN).await;
    let table = [
        (1, RecordedExpiry::Lapse),
        // The first page turns: there are two.
        (SPAN, RecordedExpiry::Lapse),
        (1, RecordedExpiry::Known),
        (0, RecordedExpiry::Stale),
        (SPAN - 1, RecordedExpiry::Lapse),
        (SPAN - 1, RecordedExpiry::Known),
        // The second: what was on the first is forgotten, and refused.
        (2 * SPAN, RecordedExpiry::Lapse),
        (1, RecordedExpiry::Stale),
        (SPAN - 1, RecordedExpiry::Stale),
        (SPAN, RecordedExpiry::Stale),
        (SPAN + 1, RecordedExpiry::Lapse),
        (SPAN + 1, RecordedExpiry::Known),
        (2 * SPAN, RecordedExpiry::Known),
    ];
    for (row, (canary, expected)) in table.into_iter().enumerate() {
        // The first page begins with the first canary.
        if row == 0 {
            assert_eq!(scene.note("other", 0, 1).await, RecordedExpiry::Lapse);
        }
        assert_eq!(scene.note("a", canary, 1).await, expected, "row {row}");
    }
    assert_eq!(scene.read("b", SPAN, 0, 9).await, TrackResult::Stale);
    assert_eq!(scene.read("b", SPAN + 1, 0, 9).await, TrackResult::New);
    for (field, canary) in
        [("history_rotated", 2 * SPAN), ("history_floor", SPAN), ("history_newest", 2 * SPAN)]
    {
        assert_eq!(scene.get("meta", field).await, (FIRST + canary).to_string(), "{field}");
    }
}

/// Or the memory of a server whose expiries nobody hears would grow without end.
async fn without_a_canary_memory_is_forgotten_by_the_time_of_the_checks(scene: &mut Scene) {
    for round in 0..4 {
        let begin = round * SPAN;
        scene.clock(FIRST + begin).await;
        let (key, read) = (format!("key {round}"), stamp(begin * 1000));
        assert_eq!(scene.enrol(&key, FIRST + begin + 1000, (0, 0), read, b"").await, TrackResult::New);
        scene.clock(FIRST + begin + 2000).await;
        let watch = scene.watch(&key).await;
        assert!(scene.judge(&watch, (0, 0), stamp((begin + 2000) * 1000), fire()).await);
        assert_eq!(
            scene.length("expiry_history").await + scene.length("expiry_history_old").await,
            2.min(round + 1)
        );
        assert_eq!(scene.enrol(&key, FIRST + begin + 1000, (0, 0), read, b"").await, TrackResult::Stale);
    }
    // The history has forgotten this key, and still refuses a reading from before its floor.
    assert_eq!(scene.enrol("key 0", FIRST + 1000, (0, 0), stamp(0), b"").await, TrackResult::Stale);
    let floor = 2 * SPAN;
    assert_eq!(scene.get("meta", "history_floor").await, (FIRST + floor).to_string());
    for (read, expected) in [(floor, TrackResult::Stale), (floor + 1, TrackResult::New)] {
        assert_eq!(scene.enrol("b", FIRST + 5 * SPAN, (0, 0), stamp(read * 1000), b"").await, expected);
    }
}

/// By its number, and not by that of whoever fills it.
#[tokio::test]
async fn a_page_that_a_late_listener_fills_keeps_what_others_have_noted() {
    // It takes a second, in which the server answers nobody else.
    let mut scene = Scene::alone().await;
    scene.clock(FIRST + 3 * SPAN).await;
    assert_eq!(scene.note("first", 0, 1).await, RecordedExpiry::Lapse);
    assert_eq!(scene.note("a", 100_000, 1).await, RecordedExpiry::Lapse);
    let fill = "for i = 1, 500000 do redis.call('HSET', KEYS[1], i, '') end";
    let past = scene.at.key("expiry_history").to_owned();
    scene.say(&["EVAL", fill, "1", &past]).await;
    assert_eq!(scene.note("late", 10_000, 1).await, RecordedExpiry::Lapse);
    assert_eq!(scene.note("a", 100_000, 1).await, RecordedExpiry::Known);
    assert_eq!(scene.note("b", 10_000 + SPAN, 1).await, RecordedExpiry::Lapse);
    assert_eq!(scene.note("a", 100_000, 1).await, RecordedExpiry::Known);
    assert_eq!(scene.note("b", 100_000 + SPAN, 1).await, RecordedExpiry::Lapse);
    assert_eq!(scene.note("a", 100_000, 1).await, RecordedExpiry::Stale);
}

async fn pages_turn_by_the_clock_and_not_by_numbers_that_it_has_not_reached(scene: &mut Scene) {
    let day = 86_400_000;
    assert_eq!(scene.note("a", 0, 1).await, RecordedExpiry::Lapse);
    // Numbers of tomorrow turn no page; and those of today are none too late after them.
    assert_eq!(scene.note("a", day, 1).await, RecordedExpiry::Lapse);
    assert_eq!(scene.note("a", day + SPAN, 1).await, RecordedExpiry::Lapse);
    for (field, expected) in [("history_rotated", 0), ("history_newest", 0)] {
        assert_eq!(scene.get("meta", field).await, (FIRST + expected).to_string(), "{field}");
    }
    for page in 1..=3 {
        scene.clock(FIRST + page * SPAN).await;
        assert_eq!(
            scene.note("a", day + SPAN, 1 + u32::try_from(page).expect("few")).await,
            RecordedExpiry::Lapse
        );
        assert_eq!(scene.get("meta", "history_rotated").await, (FIRST + page * SPAN).to_string());
    }
    assert_eq!(scene.note("a", 3 * SPAN, 1).await, RecordedExpiry::Lapse);
    // The clock goes back by more than a page holds.
    scene.clock(FIRST).await;
    assert_eq!(scene.note("b", 0, 1).await, RecordedExpiry::Lapse);
    assert_eq!(scene.note("b", 0, 1).await, RecordedExpiry::Known);
    assert_eq!(scene.get("meta", "history_rotated").await, FIRST.to_string());
}
