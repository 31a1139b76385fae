//! Beyond the limits of what is remembered of a key.

use super::*;

on_each_server! {
    Scene:
    of_seventeen_recoveries_the_oldest_is_forgotten_and_no_other,
    an_owed_announcement_is_taken_for_ten_seconds,
    a_recovery_ends_a_retry_whose_key_was_written_back,
}

/// Recoveries of one key of which a note can still come.
const TRACES: u64 = 16;

/// The key lives for a second, and is recovered half a second later.
async fn recovered(scene: &mut Scene, round: u64) {
    let begin = 2000 * round;
    scene.clock(FIRST + begin).await;
    let read = scene.read_until("a", FIRST + begin + 1000, begin, 0, begin * 1000).await;
    assert_eq!(read, TrackResult::New, "round {round}");
    scene.clock(FIRST + begin + 1500).await;
    let watch = scene.watch("a").await;
    let stamp = stamp((begin + 1500) * 1000);
    assert!(scene.judge(&watch, (FIRST + begin + 1500, 0), stamp, fire()).await, "round {round}");
}

async fn of_seventeen_recoveries_the_oldest_is_forgotten_and_no_other(scene: &mut Scene) {
    for round in 0..=TRACES {
        recovered(scene, round).await;
    }
    for round in (0..=TRACES).rev() {
        let expected = if round == 0 { RecordedExpiry::Lapse } else { RecordedExpiry::Recovered };
        assert_eq!(scene.note("a", 2000 * round, 1).await, expected, "round {round}");
    }
}

/// Its first life has expired, and its handler has failed; until when it is written back.
async fn written_back(scene: &Scene) -> u64 {
    let (_, held, _) = scene.claim().await.remove(0);
    let settled = scene.settle(held, retry()).await;
    let SettleReply::Settled(Some((until, _))) = settled else { panic!("{settled:?}") };
    until
}

/// After its retry has begun, the announcement of what was written back is expected for ten seconds.
async fn an_owed_announcement_is_taken_for_ten_seconds(scene: &mut Scene) {
    let how = with(|topic| topic.write_back = WriteBackValue::Unchanged);
    for (late, expected) in
        [(0, RecordedExpiry::Returned), (9_999, RecordedExpiry::Returned), (10_000, RecordedExpiry::Lapse)]
    {
        scene.begin().await;
        assert_eq!(scene.note_as(&how, "a", 0, 1).await, RecordedExpiry::Lapse);
        let until = written_back(scene).await;
        scene.clock(until).await;
        let (_, held, attempt) = scene.claim().await.remove(0);
        assert_eq!(attempt, 2);
        assert!(scene.store.write_back_expired(&scene.at, b"a", until).await.is_ok());
        assert!(scene.ack(held).await.gone.is_empty());
        scene.clock(until + late).await;
        assert_eq!(scene.note_as(&how, "a", 1000 + late, 1).await, expected, "{late} ms late");
        assert_eq!(scene.note_as(&how, "a", 1000 + late, 2).await, RecordedExpiry::Lapse, "one is owed");
    }
}

/// A later life that is recovered shows that the key's writer came first.
async fn a_recovery_ends_a_retry_whose_key_was_written_back(scene: &mut Scene) {
    let how = with(|topic| topic.write_back = WriteBackValue::Unchanged);
    assert_eq!(scene.note_as(&how, "a", 0, 1).await, RecordedExpiry::Lapse);
    let (_, held, _) = scene.claim().await.remove(0);
    // Written again and read while the attempt runs.
    let read = scene.enrol_as(&how, "a", FIRST + 500, (FIRST, 1), stamp(9), b"").await;
    assert_eq!(read, TrackResult::New);
    let settled = scene.settle(held, retry()).await;
    assert!(matches!(settled, SettleReply::Settled(Some(_))), "{settled:?}");
    scene.clock(FIRST + 600).await;
    let watch = scene.watch("a").await;
    let arming = ArmingId::random();
    let (at, deed) = (place((FIRST + 600, 0)), CheckAction::Fire { arming, flags: 3 });
    let judgement = CheckResult { watch, at, stamp: stamp(600_000), before: None, deed };
    assert_eq!(scene.store.apply_checks(&scene.at, &how, &[judgement]).await.expect("an answer").1, [true]);
    let claimed: Vec<_> =
        scene.claim().await.into_iter().map(|(arming, _, attempt)| (arming, attempt)).collect();
    assert_eq!(claimed, [(arming, 1)]);
    assert_eq!(scene.length("queued").await, 0, "nothing waits behind it");
}
