//! Servers that know no script, or no RESP3.

use std::time::Duration;

use keylapse::health::EventMode;
use keylapse_testing::{LocalNode, RedisReply};

use crate::attached::beside::Beside;
use crate::load::{FIRST, Load, MANY};

/// How often a node was asked for scripts that it did not have.
async fn missed_scripts(node: &LocalNode) -> u64 {
    let Ok(RedisReply::Bulk(said)) = node.command(["INFO", "errorstats"]).await else { panic!("an answer") };
    let said = String::from_utf8_lossy(&said).into_owned();
    let count = said.split_once("errorstat_NOSCRIPT:count=").and_then(|(_, rest)| rest.lines().next());
    count.map_or(0, |count| count.parse().unwrap())
}

/// A replica is told what scripts have done, and not the scripts.
#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_primary_is_given_the_scripts_and_one_that_forgets_them_is_given_them_again() {
    let cluster = crate::reach::cluster().await;
    let beside = Beside::scanned(&cluster, EventMode::Changes).await;
    let load = Load::start(&cluster, 8, MANY, Duration::from_millis(4)).await;
    load.until_handled(300).await;
    let primary = cluster.owner_of_key(FIRST).await.unwrap();
    let replica = cluster.replica_of(&primary).await.unwrap();
    assert_eq!(missed_scripts(&replica).await, 0);
    cluster.failover(&replica).await.unwrap();
    load.until_more_handled(200).await;
    let fresh = missed_scripts(&replica).await;
    assert!(fresh > 0, "it had them from somewhere");

    let mut missed = fresh;
    for _ in 0..5 {
        replica.command(["SCRIPT", "FLUSH"]).await.unwrap();
        load.until_more_handled(100).await;
        let present = missed_scripts(&replica).await;
        assert!(present > missed, "it was asked for none");
        missed = present;
    }
    let outcome = load.enough().end().await;
    outcome.assert_kept();
    assert_eq!(outcome.doubled, 0);
    assert!(outcome.median() < 500, "half of them were later than {} ms", outcome.median());
    beside.end().await;
}

/// Wake-ups are heard in RESP3 alone: what is due within a second may start a second late.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_without_resp3_are_swept_each_second() {
    let cluster = crate::reach::cluster_builder().config("rename-command HELLO \"\"").start().await.unwrap();
    let beside = Beside::scanned(&cluster, EventMode::ScanOnly).await;
    let load = Load::start(&cluster, 8, 500, Duration::from_millis(4)).await;
    let stats = load.running.stats.clone();
    let outcome = load.end().await;
    outcome.assert_kept();
    assert_eq!(outcome.doubled, 0);
    assert!(outcome.median() < 1500, "half of them were later than {} ms", outcome.median());
    assert!(stats.total().announced > 0, "expired keys are heard in RESP2, too");
    beside.end().await;
}
