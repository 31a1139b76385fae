//! Whom these tests are, on every node.

use std::time::Duration;

use keylapse_support::{APP_USER, eventually};
use keylapse_testing::{LocalNode, RedisReply};

use crate::load::Load;
use crate::reach;
use crate::support::PATIENCE;

/// How many connections this user has there, and how many of them are subscribed.
async fn connections(node: &LocalNode, user: &str) -> (usize, usize) {
    let Ok(RedisReply::Bulk(clients)) = node.command(["CLIENT", "LIST"]).await else { panic!("an answer") };
    let clients = String::from_utf8_lossy(&clients);
    let its = || clients.lines().filter(|line| line.contains(&format!(" user={user} ")));
    (its().count(), its().filter(|line| line.contains(" flags=P ")).count())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_user_of_redis_conf_needs_no_more_on_a_cluster() {
    let cluster = reach::cluster().await;
    let load = Load::start(&cluster, 8, 500, Duration::from_millis(2)).await;
    load.until_handled(100).await;
    for node in cluster.primaries().await.unwrap() {
        let is_there = async || matches!(connections(&node, APP_USER).await, (2.., 1..));
        eventually(PATIENCE, "calls and a subscription of that user", is_there).await;
        assert_eq!(connections(&node, "default").await.1, 0);
    }
    let outcome = load.end().await;
    outcome.assert_kept();
    assert_eq!(outcome.doubled, 0);
    reach::assert_nothing_refused(&cluster.nodes()).await;
}
