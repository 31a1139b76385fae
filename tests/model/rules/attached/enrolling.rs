//! Of several readings of a key, which is remembered, and what of its value.

use super::*;

on_each_server! {
    Scene:
    of_two_readings_the_later_stands,
    no_more_keys_are_enrolled_than_allowed,
    a_reading_that_comes_late_has_its_copy_kept_where_there_is_none,
    a_copy_that_is_wanted_is_asked_for_and_kept,
    without_a_canary_nothing_is_enrolled_while_somebody_hears_the_key,
    what_was_read_before_a_key_was_found_gone_is_refused_with_or_without_a_canary,
    an_expiry_that_is_noted_later_does_not_undo_that,
    after_the_clock_was_set_back_a_key_is_enrolled_as_before,
    without_a_canary_the_later_of_two_readings_stands_after_a_while,
    a_value_of_another_type_is_named_under_each_name_of_an_attached_topic,
}

async fn of_two_readings_the_later_stands(scene: &mut Scene) {
    let table = [
        (1, 5, TrackResult::New),
        (0, 9, TrackResult::Stale),
        (1, 4, TrackResult::Stale),
        (1, 5, TrackResult::Known),
        (1, 6, TrackResult::Known),
        (1, 5, TrackResult::Stale),
        (2, 1, TrackResult::Known),
        (1, 9, TrackResult::Stale),
    ];
    for (row, (count, micros, expected)) in table.into_iter().enumerate() {
        let deadline = FIRST + 1000 + row as u64;
        assert_eq!(scene.read_until("a", deadline, 0, count, micros).await, expected, "row {row}");
    }
}

async fn no_more_keys_are_enrolled_than_allowed(scene: &mut Scene) {
    let how = Policy { cap: 2, ..on() };
    let table = [
        ("a", 1000, TrackResult::New),
        ("b", 1000, TrackResult::New),
        ("c", 1000, TrackResult::Full),
        ("a", 2000, TrackResult::Known),
        ("a", 0, TrackResult::Forgotten),
        ("c", 1000, TrackResult::New),
    ];
    for (row, (key, life, expected)) in table.into_iter().enumerate() {
        let deadline = if life == 0 { 0 } else { FIRST + life };
        let enrolled = scene.enrol_as(&how, key, deadline, (FIRST, 0), stamp(row as u64), b"").await;
        assert_eq!(enrolled, expected, "row {row}");
    }
}

/// Two listeners read a key: one its deadline, as it scans, and the other its value, which takes longer.
async fn a_reading_that_comes_late_has_its_copy_kept_where_there_is_none(scene: &mut Scene) {
    let how = with(|topic| topic.values = 100);
    let enrol = async |life, micros, copy: &[u8]| {
        scene.enrol_as(&how, "a", FIRST + life, (FIRST, 0), stamp(micros), copy).await
    };
    assert_eq!(enrol(1000, 5, b"").await, TrackResult::CopyWanted);
    assert_eq!(enrol(999, 4, b"\x02of another life").await, TrackResult::Stale);
    assert_eq!(enrol(1000, 4, b"").await, TrackResult::Stale);
    assert_eq!(enrol(1000, 4, b"\x02value").await, TrackResult::Known);
    assert_eq!(enrol(1000, 3, b"\x02older").await, TrackResult::Stale);
    // What was read last stands: a reading between the two is still too late.
    assert_eq!(enrol(2000, 4, b"").await, TrackResult::Stale);
    assert_eq!(scene.get("values", "a").await, &b"\x02value"[..]);
}

async fn a_copy_that_is_wanted_is_asked_for_and_kept(scene: &mut Scene) {
    let how = with(|topic| topic.values = 100);
    let deadline = FIRST + 1000;
    let enrol = async |micros, copy: &[u8]| {
        scene.enrol_as(&how, "a", deadline, (FIRST, 0), stamp(micros), copy).await
    };
    assert_eq!(enrol(0, b"").await, TrackResult::CopyWanted);
    assert_eq!(enrol(1, b"").await, TrackResult::CopyWanted);
    assert_eq!(enrol(2, b"\x02value").await, TrackResult::Known);
    assert_eq!(enrol(3, b"").await, TrackResult::Known);
    assert_eq!(scene.get("values", "a").await, &b"\x02value"[..]);
    assert_eq!(scene.get("tracked", "a").await.slice(28..), FIRST.to_be_bytes()[..], "when it was read");
    // It is read once more before its deadline, and not due before that.
    scene.clock(FIRST + 749).await;
    assert!(scene.looks(10, 5000).await.watches.is_empty());
    scene.clock(FIRST + 750).await;
    // What is read that late is not read once more.
    assert_eq!(scene.enrol_as(&how, "b", deadline, (FIRST, 0), stamp(9), b"").await, TrackResult::CopyWanted);
    let looks = scene.looks(10, 5000).await;
    assert_eq!((looks.watches.len(), looks.next), (1, Some(deadline + 2)));
}

/// A session is extended: its head alone is written.
#[tokio::test]
async fn a_value_that_has_not_changed_is_not_written_again_and_stays_with_a_new_deadline() {
    let mut scene = Scene::alone().await;
    let how = with(|topic| topic.values = 100);
    type Said<'a> = (u64, u64, &'a [u8], TrackResult, u64, &'a [u8]);
    let said: &[Said<'_>] = &[
        (1000, 0, b"\x02value", TrackResult::New, 0, b"\x02value"),
        (2000, 5000, b"\x02value", TrackResult::Known, 5, b"\x02value"),
        (3000, 6000, b"", TrackResult::Known, 5, b"\x02value"),
        (3000, 7000, b"\x02other", TrackResult::Known, 7, b"\x02other"),
        // So soon that nobody will read it once more.
        (200, 8000, b"", TrackResult::CopyWanted, 7, b"\x02other"),
    ];
    for (life, micros, copy, expected, read_at, kept) in said {
        scene.say(&["CONFIG", "RESETSTAT"]).await;
        let enrolled = scene.enrol_as(&how, "a", FIRST + life, (FIRST, 0), stamp(*micros), copy).await;
        assert_eq!(enrolled, *expected, "{life}");
        assert_eq!(&scene.get("values", "a").await[..], *kept, "{life}");
        assert_eq!(scene.get("tracked", "a").await[28..], (FIRST + read_at).to_be_bytes(), "{life}");
        let stats = scene.say(&["INFO", "commandstats"]).await;
        let stats: String = redis::from_redis_value(stats).expect("a text");
        let written = if *micros == 5000 || copy.is_empty() { "1" } else { "2" };
        // The first canary is written down, too.
        let written = if *micros == 0 { "4" } else { written };
        assert!(stats.contains(&format!("cmdstat_hset:calls={written},")), "{life}: {stats}");
    }
    scene.clock(FIRST + 300).await;
    let watch = scene.watch("a").await;
    assert!(scene.judge(&watch, (FIRST, 0), stamp(300_000), CheckAction::Forget).await);
    assert_eq!((scene.length("tracked").await, scene.length("values").await), (0, 0));
}

async fn without_a_canary_nothing_is_enrolled_while_somebody_hears_the_key(scene: &mut Scene) {
    let blind =
        async |scene: &Scene, ms: u64| scene.enrol("a", FIRST + 60_000, (0, 0), stamp(ms * 1000), b"").await;
    assert_eq!(blind(scene, 0).await, TrackResult::New, "nobody has heard anything");
    assert_eq!(scene.note("a", 0, 1).await, RecordedExpiry::Lapse);
    // It counts when the key was read, and not when that is written.
    scene.clock(FIRST + 30_000).await;
    assert_eq!(blind(scene, 9_999).await, TrackResult::Stale);
    assert_eq!(blind(scene, 10_000).await, TrackResult::New);
}

/// A scan may write such a reading late. Its canary may have the higher number, if the other reader has missed one.
async fn what_was_read_before_a_key_was_found_gone_is_refused_with_or_without_a_canary(scene: &mut Scene) {
    let at = |canary: Option<u64>| canary.map_or((0, 0), |canary| (FIRST + canary, 0));
    let canaries = [None, Some(0), Some(500), Some(900)];
    for deed in [fire(), CheckAction::Forget] {
        for (judged, read) in canaries.iter().flat_map(|judged| canaries.map(|read| (*judged, read))) {
            scene.begin().await;
            assert_eq!(scene.read("a", 0, 0, 1).await, TrackResult::New);
            scene.clock(FIRST + 1003).await;
            let watch = scene.watch("a").await;
            assert!(scene.judge(&watch, at(judged), stamp(1_003_000), deed).await);
            let enrolled = scene.enrol("a", FIRST + 1000, at(read), stamp(999_000), b"").await;
            assert_eq!(enrolled, TrackResult::Stale, "{deed:?} behind {judged:?}, read behind {read:?}");
            scene.clock(FIRST + 20_000).await;
            let next = scene.enrol("a", FIRST + 30_000, (FIRST + 19_000, 0), stamp(19_500_000), b"").await;
            assert_eq!(next, TrackResult::New, "{deed:?} behind {judged:?}");
        }
    }
}

async fn an_expiry_that_is_noted_later_does_not_undo_that(scene: &mut Scene) {
    assert_eq!(scene.read("a", 0, 0, 1).await, TrackResult::New);
    scene.clock(FIRST + 2000).await;
    let watch = scene.watch("a").await;
    assert!(scene.judge(&watch, (0, 0), stamp(1_003_000), fire()).await);
    assert_eq!(scene.note("a", 500, 1).await, RecordedExpiry::Lapse);
    assert_eq!(scene.read("a", 900, 0, 1_002_999).await, TrackResult::Stale);
    assert_eq!(scene.read("a", 900, 0, 1_003_000).await, TrackResult::New, "it was not read before");
}

/// A check from before that has a time in the future, and refuses nothing.
async fn after_the_clock_was_set_back_a_key_is_enrolled_as_before(scene: &mut Scene) {
    scene.clock(FIRST + 3_600_000).await;
    assert_eq!(scene.enrol("a", FIRST, (0, 0), stamp(0), b"").await, TrackResult::New);
    let watch = scene.watch("a").await;
    assert!(scene.judge(&watch, (0, 0), stamp(3_600_000_000), fire()).await);
    assert_eq!(scene.enrol("a", FIRST, (0, 0), stamp(3_599_000_000), b"").await, TrackResult::Stale);
    scene.clock(FIRST + 10).await;
    assert_eq!(scene.enrol("a", FIRST + 1000, (0, 0), stamp(9_000), b"").await, TrackResult::New);
}

async fn without_a_canary_the_later_of_two_readings_stands_after_a_while(scene: &mut Scene) {
    let blind = async |scene: &Scene, deadline, micros| {
        scene.enrol("a", FIRST + deadline, (0, 0), stamp(micros), b"").await
    };
    assert_eq!(scene.read_until("a", FIRST + 60_000, 0, 0, 5).await, TrackResult::New);
    scene.clock(FIRST + 30_000).await;
    assert_eq!(blind(scene, 70_000, 9_999_999).await, TrackResult::Stale);
    assert_eq!(blind(scene, 70_000, 10_000_009).await, TrackResult::Known);
    assert_eq!(blind(scene, 80_000, 10_000_008).await, TrackResult::Stale);
    assert_eq!(blind(scene, 80_000, 10_000_009).await, TrackResult::Known);
    assert_eq!(scene.get("tracked", "a").await[..8], (FIRST + 80_000).to_be_bytes());
    // As soon as one is heard, places count again.
    assert_eq!(scene.read_until("a", FIRST + 90_000, 20_000, 0, 20_000_007).await, TrackResult::Known);
    assert_eq!(blind(scene, 80_000, 29_999_999).await, TrackResult::Stale);
}

/// Whichever name holds a value of another type, it is named.
async fn a_value_of_another_type_is_named_under_each_name_of_an_attached_topic(scene: &mut Scene) {
    for what in ["tracked", "values", "checks", "expiry_history", "expiry_history_old", "duties"] {
        let name = scene.at.key(what).to_owned();
        scene.say(&["DEL", &name]).await;
        scene.say(&["RPUSH", &name, "not yours"]).await;
        let (store, at, slot) = (&scene.store, &scene.at, SlotId::random());
        let note = AnnouncedExpiry { identity: since(FIRST, (FIRST, 1)), ..scene.note_of("a") };
        let (at_first, deadline) = (place((FIRST, 0)), FIRST + 1000);
        let read = DeadlineReading {
            key: "b".into(),
            deadline,
            at: at_first,
            stamp: stamp(0),
            requested_at: ServerTime::default(),
            copy: "\x02value".into(),
        };
        let errors = [
            store.record_expiries(at, &on(), &[note]).await.err(),
            store.track_keys(at, &on(), &[read]).await.err(),
            store.take_checks(at, take(10, 5000)).await.err(),
            store.take_duty(at, slot, 1000, false).await.err(),
        ];
        assert!(errors.iter().any(Option::is_some), "{what} is used");
        for error in errors.into_iter().flatten() {
            assert_eq!((error.kind(), error.key()), (ErrorKind::WrongType, Some(name.as_bytes())), "{error}");
        }
        scene.say(&["DEL", &name]).await;
    }
}
