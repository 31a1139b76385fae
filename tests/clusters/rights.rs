//! The user with the least rights, on every node.

use std::time::Duration;

use keylapse::testing::{Cluster, Reply};

use crate::load::Load;

/// The line of `redis.conf` that says who may what.
fn user() -> &'static str {
    let config = include_str!("../../redis.conf");
    config.lines().find(|line| line.starts_with("user keylapse ")).expect("there is one")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_user_of_redis_conf_needs_no_more_on_a_cluster() {
    let cluster = Cluster::builder().config(user()).start().await.unwrap();
    let url = cluster.url().replace("://", "://keylapse:change-me@");
    let load = Load::at(&url, 8, 500, Duration::from_millis(2)).await;
    let outcome = load.end().await;
    outcome.assert_kept();
    assert_eq!(outcome.doubled, 0);
    for node in cluster.nodes() {
        let Ok(Reply::Array(refused)) = node.command(["ACL", "LOG"]).await else { panic!("an answer") };
        assert!(refused.is_empty(), "{refused:?}");
    }
}
