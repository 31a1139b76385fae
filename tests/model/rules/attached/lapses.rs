//! What becomes of an expiry that is noted.

use super::*;

on_each_server! {
    Scene:
    lives_behind_a_running_lapse_follow_one_by_one,
    a_topic_may_ignore_keys_that_were_never_read,
    a_deadline_is_known_only_if_it_has_passed,
    an_unanchored_note_fires_each_time,
}

async fn lives_behind_a_running_lapse_follow_one_by_one(scene: &mut Scene) {
    assert_eq!(scene.note("a", 0, 1).await, RecordedExpiry::Lapse);
    let mut armings = BTreeSet::new();
    let (first, held, _) = scene.claim().await.remove(0);
    armings.insert(first);
    for count in 2..=4 {
        assert_eq!(scene.note("a", 0, count).await, RecordedExpiry::Lapse);
        assert_eq!(scene.note("a", 0, count).await, RecordedExpiry::Known);
    }
    // A retry comes before the lives that are kept.
    let settled = scene.settle(held, retry()).await;
    assert!(matches!(settled, SettleReply::Settled(Some((_, arming))) if arming == first), "{settled:?}");
    scene.clock(FIRST + 1100).await;
    let (again, mut held, attempt) = scene.claim().await.remove(0);
    assert_eq!((again, attempt), (first, 2));
    for left in (0..3).rev() {
        let acked = scene.ack(held).await;
        let (arming, next, attempt) = scene.claim().await.remove(0);
        assert_eq!((acked.followed[0].arming, attempt), (arming, 1));
        assert!(armings.insert(arming), "{arming} came before");
        assert_eq!(scene.length("queued").await, u64::from(left > 0));
        held = next;
    }
    let acked = scene.ack(held).await;
    assert!(acked.followed.is_empty() && scene.claim().await.is_empty());
    assert_eq!(
        scene.length("timers").await + scene.length("timer_states").await + scene.length("queued").await,
        0
    );
}

async fn a_topic_may_ignore_keys_that_were_never_read(scene: &mut Scene) {
    let how = with(|topic| topic.untracked = Treatment::Ignore);
    assert_eq!(scene.note_as(&how, "a", 0, 1).await, RecordedExpiry::Ignored);
    assert_eq!(scene.note_as(&how, "a", 0, 1).await, RecordedExpiry::Known);
    // What should still live may have been announced by anybody.
    assert_eq!(scene.read("a", 0, 1, 0).await, TrackResult::New);
    assert_eq!(scene.note_as(&how, "a", 0, 2).await, RecordedExpiry::Ignored);
    assert_eq!(scene.length("tracked").await, 1);
    scene.clock(FIRST + 1000).await;
    assert_eq!(scene.note_as(&how, "a", 0, 3).await, RecordedExpiry::Lapse);
    assert_eq!((scene.length("tracked").await, scene.length("timers").await), (0, 1));
}

/// Brought forward unheard, or forged: what was read says nothing of this end. And whoever judges by a clock that is
/// set back then does not know either.
async fn a_deadline_is_known_only_if_it_has_passed(scene: &mut Scene) {
    for (key, noted, flags, deadline) in
        [("early", 999, 0, 999), ("on time", 1000, 2, 1000), ("late", 1500, 2, 1000)]
    {
        scene.clock(FIRST).await;
        assert_eq!(scene.read(key, 0, 0, 0).await, TrackResult::New);
        scene.clock(FIRST + noted).await;
        assert_eq!(scene.note(key, 0, 1).await, RecordedExpiry::Lapse);
        let record = Record::decode(scene.get("timers", key).await).expect("a record");
        assert_eq!((record.payload[0], record.deadline), (flags, FIRST + deadline), "{key}");
    }
    for (key, judged, flags, deadline) in [("set back", 999, 1, 999), ("as it was", 1000, 3, 1000)] {
        scene.clock(FIRST).await;
        assert_eq!(scene.read(key, 0, 0, 0).await, TrackResult::New);
        scene.clock(FIRST + 1500).await;
        let watch = scene.watch(key).await;
        scene.clock(FIRST + judged).await;
        assert!(scene.judge(&watch, (FIRST + 1000, 0), stamp(1_500_000), fire()).await);
        let record = Record::decode(scene.get("timers", key).await).expect("a record");
        assert_eq!((record.payload[0], record.deadline), (flags, FIRST + deadline), "{key}");
    }
    // What was read behind an expiry is of the next cycle.
    scene.clock(FIRST).await;
    assert_eq!(scene.read("next", 2000, 0, 0).await, TrackResult::New);
    scene.clock(FIRST + 3000).await;
    assert_eq!(scene.note("next", 1000, 1).await, RecordedExpiry::Lapse);
    let record = Record::decode(scene.get("timers", "next").await).expect("a record");
    assert_eq!((record.payload[0], record.deadline), (0, FIRST + 3000));
}

/// Nothing is known of which life it ends.
async fn an_unanchored_note_fires_each_time(scene: &mut Scene) {
    assert_eq!(scene.read("a", 0, 0, 0).await, TrackResult::New);
    for (time, waiting) in [(0, 0), (1000, 1)] {
        scene.clock(FIRST + time).await;
        assert_eq!(scene.notes(&on(), &[scene.note_of("a")]).await, [RecordedExpiry::Lapse]);
        assert_eq!((scene.length("tracked").await, scene.length("queued").await), (1, waiting));
        assert_eq!(payload(&scene.get("timers", "a").await), &b"\x04\0"[..]);
    }
}
