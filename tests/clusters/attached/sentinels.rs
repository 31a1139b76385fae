//! Servers that sentinels name: positions in their streams are those of a run.

use std::time::Duration;

use keylapse::health::EventMode;
use keylapse_support::eventually;
use keylapse_testing::{LocalNode, SentinelGroup};

use crate::attached::scene::{Notes, Running, Writer, order};
use crate::support::PATIENCE;

/// Orders that are enrolled before the fault and expire while nobody serves them, and others that are written after it, each
/// counted once a replica has it, too. Replicas are not heard: of a key that was not enrolled, nothing would be known.
async fn during(fault: impl AsyncFnOnce(&SentinelGroup, LocalNode)) -> Notes {
    crate::support::show_log();
    // With more than one, that which is promoted may be another than that which has the key.
    let group = crate::reach::sentinel_builder().replicas(1).start().await.unwrap();
    let notes = Notes::default();
    let listeners = [0, 1].map(|_| notes.listen(&group.url()));
    let all_hear = async || listeners.iter().all(|one: &Running| one.stats.mode() == EventMode::Changes);
    eventually(PATIENCE, "both to hear", all_hear).await;
    let master = group.master().await.unwrap();
    let servers: Vec<_> = group.servers().iter().map(LocalNode::url).collect();
    let mut again = Writer::among(servers.clone(), 1).stream(300, Duration::ZERO, 1500).await.unwrap();
    let enrolled = || -> u64 {
        listeners.iter().filter_map(|one| one.stats.attached("orders")).map(|stats| stats.tracked).sum()
    };
    eventually(PATIENCE, "all to be enrolled", async || enrolled() >= 300).await;
    master.command(["WAIT", "1", "5000"]).await.unwrap();
    notes.harm(fault(&group, master)).await;
    let mut later = Writer::among(servers, 1);
    for key in (300..400).map(order) {
        if !later.write(&key, 1000).await {
            again.insert(key);
        }
    }
    notes.until_all(400).await;
    for listener in listeners {
        listener.stop().await.unwrap();
    }
    notes.assert_explained(400, &again);
    notes
}

#[tokio::test(flavor = "multi_thread")]
async fn p1_a_killed_master_costs_no_expiry_of_a_key_that_was_enrolled() {
    during(async |group, master| {
        master.kill();
        group.wait_for_master_other_than(&master).await.unwrap();
        master.restart().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p3_a_master_that_is_stopped_replaced_and_continued_doubles_nothing_untold() {
    during(async |group, master| {
        master.suspend().unwrap();
        group.wait_for_master_other_than(&master).await.unwrap();
        master.resume().unwrap();
    })
    .await;
}

/// One listener still hears the old server when the other hears the new one: their positions have two names.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_outlives_its_master_is_read_anew_and_fires_once() {
    crate::support::show_log();
    let group = crate::reach::sentinel_group().await;
    let notes = Notes::default();
    let listener = notes.listen(&group.url());
    eventually(PATIENCE, "it to hear", async || listener.stats.mode() == EventMode::Changes).await;
    let servers = group.servers().iter().map(LocalNode::url).collect();
    let mut writer = Writer::among(servers, 1);
    // Sentinels that do not agree at once take up to 15 s.
    writer.write_all((0..50).map(order), 20_000).await;
    let master = group.master().await.unwrap();
    master.kill();
    group.wait_for_master_other_than(&master).await.unwrap();
    notes.until(50).await;
    listener.stop().await.unwrap();
    notes.assert_each_once(50);
}
