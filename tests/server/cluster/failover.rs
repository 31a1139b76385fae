//! Primaries that are killed, stopped and replaced.

use std::time::Duration;

use keylapse::testing::Cluster;

use super::load::Load;

#[tokio::test(flavor = "multi_thread")]
async fn p1_a_killed_primary_costs_no_timer() {
    let cluster = Cluster::start().await.unwrap();
    let load = Load::start(&cluster, 8, 2000, Duration::from_millis(4)).await;
    tokio::time::sleep(Duration::from_secs(2)).await; // the load goes on for eight
    let victim = cluster.primaries().await.unwrap()[0].clone();
    victim.kill();
    let outcome = load.end().await;
    outcome.assert_none_early();
}
