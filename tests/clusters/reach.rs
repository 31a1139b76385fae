//! How the library reaches the servers of these tests: as the user of `redis.conf` with the least rights, on every node.
//! What the harness and a test itself have to say goes as the default user, who may do everything.

use keylapse::testing::{Cluster, ClusterBuilder, Node, Reply, SentinelGroup, SentinelGroupBuilder};
use keylapse_support::{APP_PASSWORD, APP_USER, Binary, app_user_line, skipped};

/// What servers announce: all that attached topics can make use of.
pub(crate) const FLAGS: &str = "KExg$";

/// The server that alone can do something; without it that is said.
pub(crate) fn valkey_9(can: &str) -> Option<Binary> {
    let able = |one: &Binary| one.version().is_valkey && one.version().number.0 >= 9;
    let found = Binary::all().unwrap().into_iter().find(able);
    if found.is_none() {
        skipped(&format!("no server at hand {can}: KEYLAPSE_SERVERS may name Valkey 9"));
    }
    found
}

pub(crate) async fn cluster() -> Cluster {
    cluster_builder().start().await.unwrap()
}

pub(crate) fn cluster_builder() -> ClusterBuilder {
    Cluster::builder().config(app_user_line()).notifications(FLAGS)
}

pub(crate) async fn sentinel_group() -> SentinelGroup {
    sentinel_builder().start().await.unwrap()
}

pub(crate) fn sentinel_builder() -> SentinelGroupBuilder {
    SentinelGroup::builder().config(app_user_line()).notifications(FLAGS)
}

/// The same URL for that user.
pub(crate) fn as_app(url: &str) -> String {
    url.replacen("://", &format!("://{APP_USER}:{APP_PASSWORD}@"), 1)
}

/// Nothing was refused on any of these that run: neither for want of a right, nor for keys of two slots.
pub(crate) async fn assert_nothing_refused(nodes: &[Node]) {
    for node in nodes.iter().filter(|node| node.is_running()) {
        let Ok(Reply::Array(refused)) = node.command(["ACL", "LOG"]).await else { panic!("an answer") };
        assert!(refused.is_empty(), "{refused:?}");
        let Ok(Reply::Bulk(stats)) = node.command(["INFO", "errorstats"]).await else { panic!("an answer") };
        let stats = String::from_utf8_lossy(&stats);
        assert!(!stats.contains("CROSSSLOT"), "{stats}");
    }
}
