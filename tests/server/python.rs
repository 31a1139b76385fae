//! examples/producer.py, as it stands in docs/internals/wire.md: another language arms and
//! cancels, and a listener of ours runs it.

use std::process::Stdio;
use std::time::Duration;

use keylapse::{ArmResult, Done, Lapse, Rescheduled, Schedule, Topic};
use keylapse_support::{Proxy, Server, Then, skipped};
use keylapse_wire::scripts;
use redis::Value;
use tokio::process::Command;

use crate::server::support::{Running, listener, reporting, server_and_schedule};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/producer.py");

/// Runs the program; what it prints, or says when it fails.
async fn produce(url: &str, words: &[&str]) -> String {
    let mut program = Command::new("python3");
    let output = program.arg(PROGRAM).arg("--url").arg(url).args(words).stdin(Stdio::null()).output().await;
    let output = output.expect("python3 runs");
    let text = if output.status.success() { output.stdout } else { output.stderr };
    String::from_utf8_lossy(&text).trim().to_owned()
}

/// A server and a schedule, where the program can run.
async fn stage() -> Option<(Server, Schedule)> {
    let check = Command::new("python3").args(["-c", "import redis.retry"]).output().await;
    if !check.is_ok_and(|output| output.status.success()) {
        skipped("python3 with the package redis is needed (pip install redis)");
        return None;
    }
    Some(server_and_schedule().await)
}

fn topic() -> Topic<String> {
    Topic::new("app:python:{id}").expect("a topic")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_armed_in_python_is_handled_in_rust() {
    // Python comes first, and makes the partition.
    let Some((server, schedule)) = stage().await else { return };
    let url = server.app_url();
    let armed = produce(&url, &["arm", "app.python", "app:python:1", "60000", r#""hello""#]).await;
    assert!(armed.starts_with("armed, due at "), "{armed}");
    let value = server.cmd(&["GET", "app:python:1"]).await;
    assert_eq!(value, Value::BulkString(b"1".into()));
    let replaced = produce(&url, &["arm", "app.python", "app:python:1", "120000", r#""hello""#]).await;
    assert!(replaced.starts_with("replaced, due at "), "{replaced}");
    let Value::Int(left) = server.cmd(&["PTTL", "app:python:1"]).await else { panic!("it is not there") };
    assert!(left > 60_000, "its trigger key has been moved, too: {left}");

    let moved = schedule.reschedule(&topic(), ["1"], Duration::ZERO).await.expect("an answer");
    assert!(matches!(moved, Rescheduled::Rescheduled(_)), "{moved:?}");
    let (handler, mut reported) =
        reporting(|lapse: Lapse<String>| ((lapse.key().to_vec(), lapse.payload().clone()), Ok(Done)));
    let running = Running::start(listener(&server).on(topic(), handler));
    assert_eq!(reported.next().await, (b"app:python:1".to_vec(), "hello".to_owned()));
    running.stop().await.expect("an orderly end");
}

#[tokio::test(flavor = "multi_thread")]
async fn both_languages_agree_on_partitions_and_see_each_others_timers() {
    let Some((server, schedule)) = stage().await else { return };
    let (url, topic) = (server.app_url(), topic().partitions(7));
    let soon = Duration::from_secs(60);
    let armed = schedule.arm(&topic, ["0"], soon, &"rust".to_owned()).await.expect("an answer");
    assert!(armed.is_armed());
    for id in 0..5 {
        let key = format!("app:python:{id}");
        let said = produce(&url, &["arm", "app.python", &key, "60000", "\"python\"", "--if-absent"]).await;
        assert_eq!(said == "exists", id == 0, "{said}");
        let id = id.to_string();
        let timer = schedule.look_up(&topic, [&id]).await.expect("an answer").expect("a timer");
        assert_eq!(timer.payload, if id == "0" { "rust" } else { "python" });
    }
    let replaced = schedule.arm(&topic, ["1"], soon, &"rust".to_owned()).await.expect("an answer");
    assert!(matches!(replaced, ArmResult::Replaced(_)), "{replaced:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_armed_in_rust_is_cancelled_in_python() {
    let Some((server, schedule)) = stage().await else { return };
    let (url, topic) = (server.app_url(), topic());
    let armed =
        schedule.arm(&topic, ["1"], Duration::from_secs(60), &"x".to_owned()).await.expect("an answer");
    assert!(armed.is_armed());
    let cancel = ["cancel", "app.python", "app:python:1"];
    assert_eq!(produce(&url, &cancel).await, "cancelled");
    assert!(schedule.look_up(&topic, ["1"]).await.expect("an answer").is_none());
    assert_eq!(server.cmd(&["EXISTS", "app:python:1"]).await, Value::Int(0), "nor is its trigger key there");
    assert_eq!(produce(&url, &cancel).await, "not armed");
}

#[tokio::test(flavor = "multi_thread")]
async fn python_repeats_a_call_without_a_reply_as_such() {
    let Some((server, schedule)) = stage().await else { return };
    let proxy = Proxy::before(&server).await;
    let topic = topic();
    for script in [&*scripts::ARM, &*scripts::CANCEL] {
        // Loaded, so that the reply that is lost is not a NOSCRIPT.
        server.cmd(&["SCRIPT", "LOAD", &script.text]).await;
        let runs = |words: &[bytes::Bytes]| words.get(1).is_some_and(|sha| *sha == script.sha.as_bytes());
        proxy.lose_reply(runs, Then::Close);
    }
    assert!(schedule.look_up(&topic, ["1"]).await.expect("an answer").is_none());
    let armed =
        produce(&proxy.app_url(), &["arm", "app.python", "app:python:1", "60000", "1", "--if-absent"]).await;
    assert!(armed.starts_with("armed, due at "), "it does not find itself: {armed}");
    let cancelled = produce(&proxy.app_url(), &["cancel", "app.python", "app:python:1"]).await;
    assert_eq!(cancelled, "cancelled", "it does not find its own work done");
    assert_eq!(proxy.lost(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_number_of_partitions_is_refused() {
    let Some((server, schedule)) = stage().await else { return };
    assert!(schedule.look_up(&topic(), ["1"]).await.expect("an answer").is_none());
    server.cmd(&["DEL", "keylapse:topics"]).await;
    let arm = ["--partitions", "2", "arm", "app.python", "app:python:1", "60000", "1"];
    let said = produce(&server.app_url(), &arm).await;
    assert!(said.contains("1 partitions") || said.contains("PARTITIONS"), "{said}");
    assert!(schedule.look_up(&topic(), ["1"]).await.expect("an answer").is_none());
}
