//! What every call does on several servers.

use std::time::Duration;

use keylapse::testing::{Cluster, Reply};

use super::load::Load;

/// Commands that were refused for keys of two slots, on any node.
async fn crossslot(cluster: &Cluster) -> Vec<String> {
    let mut refused = Vec::new();
    for node in cluster.nodes() {
        let Ok(Reply::Bulk(stats)) = node.command(["INFO", "errorstats"]).await else { panic!("an answer") };
        let stats = String::from_utf8_lossy(&stats).into_owned();
        refused.extend(stats.lines().filter(|line| line.contains("CROSSSLOT")).map(str::to_owned));
    }
    refused
}

#[tokio::test(flavor = "multi_thread")]
async fn timers_of_all_partitions_run_once_and_on_time() {
    let cluster = Cluster::start().await.unwrap();
    let load = Load::start(&cluster, 8, 1000, Duration::from_millis(1)).await;
    let outcome = load.end().await;
    outcome.assert_none_early();
    assert_eq!(outcome.doubled, 0);
    assert_eq!(crossslot(&cluster).await, Vec::<String>::new());
}
