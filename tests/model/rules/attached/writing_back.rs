//! Keys that are written back for their retries.

use super::*;
use keylapse_support::skipped_on_a_cluster;

on_each_server! {
    Scene:
    a_key_that_was_written_back_is_told_from_its_writers,
}

#[tokio::test]
async fn a_key_is_written_back_if_its_name_is_free() {
    if skipped_on_a_cluster("scripts cannot read the clock of this test, a key, beside those of another slot")
    {
        return;
    }
    let scene = Scene::alone().await;
    scene.say(&["HSET", "app:hash", "f", "v"]).await;
    scene.say(&["PEXPIREAT", "app:hash", &FIRST.to_string()]).await;
    let hash = [Bytes::from("app:hash")];
    let read = async |scene: &Scene| {
        let read = scene.store.read(&hash, &CopySpec { cap: 1000, dumps: true, ..CopySpec::default() }).await;
        read.expect("an answer").remove(0)
    };
    let before = read(&scene).await;
    scene.say(&["DEL", "app:hash"]).await;
    let later = FIRST + 5;
    let restore = async |scene: &Scene, key: &str, deadline: u64, copy: &[u8]| {
        scene.store.write_back(key.as_bytes(), deadline, copy).await.expect("an answer")
    };
    assert_eq!(restore(&scene, "app:hash", later, &before.copy).await, MarkerKey::Set);
    assert_eq!(restore(&scene, "app:hash", later, &before.copy).await, MarkerKey::Taken);
    let KeySnapshot { life, copy, .. } = read(&scene).await;
    assert_eq!((life, copy), (KeyDeadline::Until(later), before.copy));

    assert_eq!(restore(&scene, "app:text", FIRST, b"\x02value").await, MarkerKey::None);
    assert_eq!(restore(&scene, "app:text", later, b"\x02value").await, MarkerKey::Set);
    scene.say(&["SET", "app:text", "its writer's"]).await;
    assert_eq!(restore(&scene, "app:text", later, b"\x02value").await, MarkerKey::Taken);
    let found = scene.store.read(&["app:text".into()], &CopySpec { cap: 99, ..CopySpec::default() }).await;
    assert_eq!(found.expect("it is read")[0].life, KeyDeadline::Persistent, "it was left alone");
}

/// A retry whose key was written back ends when its writer comes first.
async fn a_key_that_was_written_back_is_told_from_its_writers(scene: &mut Scene) {
    let how = with(|topic| topic.write_back = WriteBackValue::Unchanged);
    for (key, life) in [("ours", 0), ("theirs", 500), ("heard", 0), ("early", 0)] {
        scene.clock(FIRST).await;
        assert_eq!(scene.note_as(&how, key, 0, 1).await, RecordedExpiry::Lapse);
        let (_, held, _) = scene.claim().await.remove(0);
        let settled = scene.settle(held, retry()).await;
        let SettleReply::Settled(Some((until, arming))) = settled else { panic!("{settled:?}") };
        let enrolled = scene.enrol_as(&how, key, until + life, (FIRST, 1), stamp(9), b"").await;
        let (says, waits) = match key {
            "ours" => (TrackResult::WrittenBack, true),
            "theirs" => (TrackResult::New, false),
            // Heard without having been read: at its deadline it is what was written back.
            "heard" => {
                scene.clock(until).await;
                assert_eq!(scene.note_as(&how, key, 500, 1).await, RecordedExpiry::Returned);
                (enrolled, true)
            }
            _ => {
                assert_eq!(scene.note_as(&how, key, 500, 1).await, RecordedExpiry::Superseding);
                let record = Record::decode(scene.get("timers", key).await).expect("a record");
                assert_ne!(record.arming, arming);
                (enrolled, true)
            }
        };
        assert_eq!(enrolled, says, "{key}");
        let (rec, due) = (scene.at.key("timers").to_owned(), scene.at.key("due").to_owned());
        let removed = scene.say(&["HDEL", &rec, key]).await;
        assert_eq!(removed, redis::Value::Int(waits.into()), "{key}");
        scene.say(&["ZREM", &due, key]).await;
    }
}
