//! The build before beside this one, on one server: neither takes over nor spoils what the other holds, both
//! say why, and the way over that CHANGELOG.md gives under "Wire version 5" works.

mod side;

use std::time::Duration;

use keylapse_support::{Server, eventually};
use side::{before, now};

const NAMESPACE: &str = "keylapse";
const SOON: Duration = Duration::from_secs(2);
const HOUR: Duration = Duration::from_secs(3600);
const PATIENCE: Duration = Duration::from_secs(30);

/// So many orders: enough that some wait while the other build comes and goes.
const ORDERS: usize = 50;

fn ids(of: &str) -> Vec<String> {
    (0..ORDERS).map(|n| format!("{of}{n:02}")).collect()
}

/// Plays one test with the builds in both parts.
macro_rules! both_ways {
    ($($test:ident => $there:ident, $comes:ident;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                let server = Server::start().await;
                let url = server.url();
                let listening = $there::Listening::managed(&url, NAMESPACE);
                for id in ids("a") {
                    $there::arm(&url, NAMESPACE, &id, SOON).await.expect("armed");
                }

                let refused = $comes::arm(&url, NAMESPACE, "b", HOUR).await.expect_err("another wire version");
                assert_eq!(refused.kind(), $comes::WIRE_VERSION, "{refused}");
                assert!(refused.to_string().contains("keylapse:{order.unpaid/0}:meta"), "{refused}");
                let refused = $comes::Listening::managed(&url, NAMESPACE).refusal().await;
                assert_eq!(refused.kind(), $comes::WIRE_VERSION, "{refused}");

                eventually(PATIENCE, "all that were armed", async || listening.closed().len() >= ORDERS).await;
                $there::arm(&url, NAMESPACE, "z", Duration::ZERO).await.expect("armed");
                eventually(PATIENCE, "one more", async || listening.closed().len() > ORDERS).await;
                listening.stop_with([ids("a"), vec!["z".to_owned()]].concat()).await;
            }
        )*
    };
}

both_ways! {
    this_build_is_refused_by_the_topics_of_the_build_before_and_disturbs_nothing => before, now;
    the_build_before_is_refused_by_our_topics_and_disturbs_nothing => now, before;
}

/// The second way of CHANGELOG.md: another namespace. Both hear the expired keys of both.
#[tokio::test(flavor = "multi_thread")]
async fn in_a_namespace_of_its_own_each_build_closes_its_own_orders() {
    let server = Server::start().await;
    let url = server.url();
    let (theirs, ours) =
        (before::Listening::managed(&url, NAMESPACE), now::Listening::managed(&url, "keylapse2"));
    for (a, b) in ids("a").iter().zip(&ids("b")) {
        before::arm(&url, NAMESPACE, a, SOON).await.expect("armed");
        now::arm(&url, "keylapse2", b, SOON).await.expect("armed");
    }
    let done = async || theirs.closed().len() >= ORDERS && ours.closed().len() >= ORDERS;
    eventually(PATIENCE, "all orders of both", done).await;
    theirs.stop_with(ids("a")).await;
    ours.stop_with(ids("b")).await;
}

/// The first way of CHANGELOG.md: drain, stop, delete, start.
#[tokio::test(flavor = "multi_thread")]
async fn once_drained_stopped_and_deleted_a_topic_is_this_builds() {
    let server = Server::start().await;
    let url = server.url();
    let theirs = before::Listening::managed(&url, NAMESPACE);
    for id in ids("a") {
        before::arm(&url, NAMESPACE, &id, Duration::ZERO).await.expect("armed");
    }
    eventually(PATIENCE, "the topic to be drained", async || theirs.closed().len() >= ORDERS).await;
    theirs.stop_with(ids("a")).await;
    delete_names(&server).await;

    let ours = now::Listening::managed(&url, NAMESPACE);
    for id in ids("a") {
        now::arm(&url, NAMESPACE, &id, Duration::ZERO).await.expect("armed");
    }
    eventually(PATIENCE, "the same orders again", async || ours.closed().len() >= ORDERS).await;
    ours.stop_with(ids("a")).await;
}

/// Keys that other programs write stay where they are: a scan finds them again.
#[tokio::test(flavor = "multi_thread")]
async fn attached_keys_are_found_again_by_this_build() {
    let server = Server::start().await;
    let url = server.url();
    server.cmd(&["CONFIG", "SET", "notify-keyspace-events", "Ex"]).await;
    let theirs = before::Listening::attached(&url, NAMESPACE);
    for id in ids("a") {
        server.cmd(&["SET", &format!("order:unpaid:{id}"), "\"\"", "EX", "2"]).await;
    }
    eventually(PATIENCE, "their orders", async || theirs.closed().len() >= ORDERS).await;
    for id in ids("b") {
        server.cmd(&["SET", &format!("order:unpaid:{id}"), "\"\"", "EX", "5"]).await;
    }
    let refused = now::Listening::attached(&url, NAMESPACE).refusal().await;
    assert_eq!(refused.kind(), now::WIRE_VERSION, "{refused}");
    theirs.stop_with(ids("a")).await;
    delete_names(&server).await;

    let ours = now::Listening::attached(&url, NAMESPACE);
    eventually(PATIENCE, "the orders that were left", async || ours.closed().len() >= ORDERS).await;
    ours.stop_with(ids("b")).await;
}

/// Step 2 of CHANGELOG.md.
async fn delete_names(server: &Server) {
    let names = server.cmd(&["KEYS", "keylapse:{order.unpaid/*}:*"]).await;
    let names: Vec<String> = redis::from_redis_value(names).expect("names");
    assert!(!names.is_empty(), "the topic has names");
    for name in names {
        server.cmd(&["DEL", &name]).await;
    }
}
