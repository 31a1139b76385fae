//! From another program's `SET … PX` to the handler, on whatever server the key lies.

use keylapse::Expiry;
use keylapse::health::EventMode;
use keylapse_support::eventually;

use crate::attached::scene::{Scene, Writer, order, three};
use crate::reach::cluster_builder;
use crate::support::PATIENCE;

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_all_servers_are_enrolled_when_they_are_written_and_fire_once_with_their_values() {
    let scene = Scene::start(three().await, 2).await;
    let mut writer = Writer::new(&scene.cluster);
    writer.write_all((0..60).map(order), 2000).await;
    scene.until_enrolled(60).await;
    scene.notes.until(60).await;
    scene.notes.assert_each_once(60);
    for (key, runs) in scene.notes.all() {
        let run = &runs[0];
        assert_eq!((run.value.as_deref(), run.expiry), (Some(key.as_bytes()), Expiry::Announced), "{key}");
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_were_there_before_are_found_on_all_servers() {
    let cluster = three().await;
    let mut writer = Writer::new(&cluster);
    writer.write_all((0..60).map(order), 5000).await;
    let scene = Scene::start(cluster, 1).await;
    scene.until_enrolled(60).await;
    scene.notes.until(60).await;
    scene.notes.assert_each_once(60);
    scene.end().await;
}

/// What is remembered of a key here has 56 bits for its deadline.
#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_that_is_too_far_to_be_read_exactly_is_none() {
    let scene = Scene::start(three().await, 1).await;
    for (number, deadline) in [1 << 53, 1 << 56, (1 << 60) + 7, i64::MAX].into_iter().enumerate() {
        let key = order(number);
        scene.at_owner(&key, &["SET", &key, "a sofa", "PXAT", &deadline.to_string()]).await;
    }
    Writer::new(&scene.cluster).write_all([order("near")], 2000).await;
    scene.until_enrolled(1).await;
    scene.notes.until(1).await;
    let scans = scene.counted().scans;
    eventually(PATIENCE, "scans of all servers", async || scene.counted().scans >= scans + 6).await;
    assert_eq!((scene.enrolled().await, scene.notes.all().len()), (0, 1));
    scene.end().await;
}

/// One that is blind does not hide behind the others, and they go on as before.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_its_flags_is_scanned_and_its_keys_fire_all_the_same() {
    let cluster = three().await;
    cluster.nodes()[1].command(["CONFIG", "SET", "notify-keyspace-events", ""]).await.unwrap();
    let mut scene = Scene::start(cluster, 0).await;
    scene.listen(&scene.cluster.url());
    scene.until(EventMode::ScanOnly).await;
    let mut writer = Writer::new(&scene.cluster);
    writer.write_all((0..60).map(order), 6000).await;
    scene.until_enrolled(60).await;
    scene.notes.until(60).await;
    scene.notes.assert_each_once(60);
    let expiries = scene.notes.all().into_values().flatten().map(|run| run.expiry);
    let (heard, others): (Vec<_>, Vec<_>) = expiries.partition(|expiry| *expiry == Expiry::Announced);
    assert!(!heard.is_empty() && others.iter().all(|expiry| *expiry == Expiry::Recovered), "{others:?}");
    assert!(!others.is_empty(), "some keys lie there");
    scene.end().await;
}

/// Where nobody says what is written, scans find it, and go on where the server is by then.
#[tokio::test(flavor = "multi_thread")]
async fn servers_that_get_other_addresses_are_scanned_there() {
    let cluster = cluster_builder().replicas_per_primary(0).notifications("Ex").start().await.unwrap();
    let mut scene = Scene::start(cluster, 0).await;
    scene.listen(&scene.cluster.url());
    scene.until(EventMode::Expired).await;
    for node in scene.cluster.nodes() {
        node.restart_elsewhere().await.unwrap();
        scene.cluster.wait_until_ok().await.unwrap();
    }
    let mut writer = Writer::new(&scene.cluster);
    writer.write_all((0..60).map(order), 60_000).await;
    scene.until_enrolled(60).await;
    scene.end().await;
}
