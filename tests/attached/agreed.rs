//! One policy for all listeners of a topic: that of the highest revision.

use std::time::Duration;

use keylapse::attach::{Treatment, WriteBack};
use keylapse::{Attached, ErrorKind, Expiry, Listener};
use keylapse_support::{Server, eventually};

use crate::rows::evict;
use crate::scene::{ALL_FLAGS, Harness, Log, Notes, PATIENCE, Running, now, order, orders, server};

const META: &str = "keylapse:{orders/0}:meta";

type Orders = Attached<bytes::Bytes>;

fn plain() -> Orders {
    Attached::new(orders())
}

fn start(server: &Server, topic: Orders, notes: &Notes) -> Running {
    Running::start(server, |builder| builder.attach(topic, notes.handler()))
}

/// Starts a listener, and stops it once its policy, of this revision, stands.
async fn bring(server: &Server, topic: Orders, revision: u32) {
    let listener = start(server, topic.revision(revision), &Notes::default());
    eventually(PATIENCE, "its policy to stand", async || {
        let stands = server.cmd(&["HGET", META, "revision"]).await;
        stands == redis::Value::BulkString(revision.to_string().into_bytes())
    })
    .await;
    listener.stop().await;
}

/// What becomes of a listener that cannot start.
async fn refused(server: &Server, topic: Orders) -> keylapse::Error {
    let listener = Listener::builder(server.app_url()).attach(topic, Notes::default().handler()).build();
    let run = listener.expect("a listener").run_until(std::future::pending::<()>());
    tokio::time::timeout(PATIENCE, run).await.expect("it ends").expect_err("it does not start")
}

async fn stands(server: &Server) -> (u32, serde_json::Value) {
    let fields = server.cmd(&["HMGET", META, "revision", "policy"]).await;
    let (revision, text): (u32, String) = redis::from_redis_value(fields).expect("a policy stands");
    (revision, serde_json::from_str(&text).expect("JSON"))
}

#[tokio::test]
async fn a_lower_revision_follows_the_policy_that_stands_and_warns_once() {
    let (log, _kept) = Log::keep();
    let server = server(ALL_FLAGS).await;
    bring(&server, plain().keep_values(64), 7).await;
    // Only the one that keeps none is left, and it keeps them.
    let harness = Harness::on(server, plain().revision(6), Notes::handler).await;
    let deadline = harness.write("1", "a sofa", 2000).await;
    harness.fires_once("1", "a sofa", deadline).await;
    let warned = ["WARN", "follows it", "orders", "revision=6", "stands=7", "values is 0 here and 64 there"];
    assert_eq!((log.lines_with(&warned), log.lines_with(&["follows it"])), (1, 1));
    let (revision, policy) = stands(&harness.server).await;
    assert_eq!((revision, &policy["values"]), (7, &serde_json::json!(64)));
    harness.listener.stop().await;
}

#[tokio::test]
async fn the_same_revision_with_another_policy_does_not_start_and_names_both() {
    let server = server(ALL_FLAGS).await;
    let listener = start(&server, plain().keep_values(64).revision(3), &Notes::default());
    listener.until_scanned().await;
    let error = refused(&server, plain().untracked(Treatment::Ignore).revision(3)).await;
    assert_eq!(error.kind(), ErrorKind::Conflict);
    for says in [
        "attached topic orders",
        "revision 3",
        "untracked is \"ignore\" here and \"fire\" there",
        "values is 0 here and 64 there",
    ] {
        assert!(error.to_string().contains(says), "{error}");
    }
    assert!(!error.to_string().contains("vanished"), "{error}");
    // What is a listener's own may differ.
    let other = start(&server, plain().keep_values(64).revision(3).cap(9).scan_rate(77), &Notes::default());
    eventually(PATIENCE, "it to run", async || other.hears()).await;
    other.stop().await;
    listener.stop().await;
}

#[tokio::test]
async fn a_higher_revision_takes_over_and_those_who_start_follow() {
    let (log, _kept) = Log::keep();
    let server = server("Ex").await;
    let higher = plain().vanished(Treatment::Fire).untracked(Treatment::Ignore);
    bring(&server, higher, 2).await;
    let often = plain().scan_every(Duration::from_millis(100));
    let harness = Harness::on(server, often, Notes::handler).await;
    assert_eq!(log.lines_with(&["follows it", "revision=1"]), 1);

    harness.cmd(&["PUBLISH", "__keyevent@0__:expired", &order("never read")]).await;
    eventually(PATIENCE, "it to be ignored", async || harness.listener.attached().ignored == 1).await;
    let evict = async || evict(&harness.server, &order("evicted")).await;
    harness.enrol_and(&["evicted"], "a sofa", 3000, evict).await;
    assert_eq!(harness.only("evicted").await.expiry, Expiry::Vanished);
    assert!(harness.of("never read").is_empty(), "{:?}", harness.of("never read"));
    harness.listener.stop().await;
}

#[tokio::test]
async fn who_follows_writes_back_as_the_policy_says() {
    let server = server(ALL_FLAGS).await;
    let topic = || {
        let delay = keylapse::Backoff::fixed(Duration::from_millis(2000));
        Attached::new(orders().retry(delay)).keep_values(64)
    };
    let higher = topic().write_back(WriteBack::counting_in("attempt"));
    bring(&server, higher, 2).await;
    let harness = Harness::on(server, topic(), |notes| notes.failing(1)).await;
    harness.enrol("1", "{\"sofa\":true}", 1500).await;
    eventually(PATIENCE, "the key to be back", async || {
        harness.cmd(&["GET", &order("1")]).await
            == redis::Value::BulkString(b"{\"sofa\":true,\"attempt\":2}".to_vec())
    })
    .await;
    eventually(PATIENCE, "the retry", async || harness.of("1").len() == 2).await;
    harness.pass(now()).await;
    assert_eq!(harness.of("1").len(), 2, "{:?}", harness.of("1"));
    let stats = harness.listener.attached();
    assert_eq!((stats.restored, stats.returned), (1, 1), "{stats:?}");
    harness.listener.stop().await;
}

#[tokio::test]
async fn a_policy_of_a_newer_program_is_refused_at_the_start() {
    let server = server(ALL_FLAGS).await;
    bring(&server, plain().keep_values(64), 1).await;
    server.cmd(&["HSET", META, "revision", "9", "policy", "{\"v\":2}"]).await;
    let error = refused(&server, plain()).await;
    assert_eq!(error.kind(), ErrorKind::WireVersion, "{error}");
    assert!(error.to_string().contains("upgrade"), "{error}");
    // Who says more has no need to read it.
    bring(&server, plain(), 10).await;
    assert_eq!(stands(&server).await.1["v"], 1);
}
