//! How the library reaches the servers of these tests: as the user of `redis.conf` with the least rights, on every node.
//! What the harness and a test itself have to say goes as the default user, who may do everything.

use keylapse::{Client, Schedule};
use keylapse_support::{APP_PASSWORD, APP_USER, Binary, Version, app_user_line, skipped};
use keylapse_testing::{
    LocalCluster, LocalClusterBuilder, LocalNode, RedisReply, SentinelGroup, SentinelGroupBuilder,
};

/// What servers announce: all that attached topics can make use of.
pub(crate) const FLAGS: &str = "KExg$";

/// The server that alone can do something; without it that is said.
pub(crate) fn valkey_9(can: &str) -> Option<Binary> {
    at_hand(can, "Valkey 9", is_valkey_9).into_iter().next()
}

/// The servers that move slots as one, with all their keys; without any that is said.
pub(crate) fn that_move_slots_as_one() -> Vec<Binary> {
    let able = |version: Version| is_valkey_9(version) || !version.is_valkey && version.number >= (8, 4, 0);
    at_hand("moves slots as one", "Valkey 9 and Redis 8.4", able)
}

fn is_valkey_9(version: Version) -> bool {
    version.is_valkey && version.number.0 >= 9
}

fn at_hand(can: &str, which: &str, able: fn(Version) -> bool) -> Vec<Binary> {
    let found: Vec<_> = Binary::all().unwrap().into_iter().filter(|one| able(one.version())).collect();
    if found.is_empty() {
        skipped(&format!("no server at hand {can}: KEYLAPSE_SERVERS may name {which}"));
    }
    found
}

pub(crate) async fn cluster() -> LocalCluster {
    cluster_builder().start().await.unwrap()
}

pub(crate) fn cluster_builder() -> LocalClusterBuilder {
    LocalCluster::builder().config(app_user_line()).notifications(FLAGS)
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

/// A schedule that connects at its first call, which is tried again where a busy server does not answer at once.
pub(crate) fn schedule(url: &str) -> Schedule {
    Schedule::new(Client::new(url).unwrap())
}

/// Nothing was refused on any of these that run: neither for want of a right, nor for keys of two slots.
pub(crate) async fn assert_nothing_refused(nodes: &[LocalNode]) {
    for node in nodes.iter().filter(|node| node.is_running()) {
        let Ok(RedisReply::Array(refused)) = node.command(["ACL", "LOG"]).await else { panic!("an answer") };
        assert!(refused.is_empty(), "{refused:?}");
        let Ok(RedisReply::Bulk(stats)) = node.command(["INFO", "errorstats"]).await else {
            panic!("an answer")
        };
        let stats = String::from_utf8_lossy(&stats);
        assert!(!stats.contains("CROSSSLOT"), "{stats}");
    }
}
