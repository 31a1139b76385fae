//! It is asked over HTTP to arm and cancel.

use std::io::{Read, Write};
use std::net::TcpStream;

use keylapse::Topic;
use keylapse_support::eventually;

use crate::run::program::PATIENCE;
use crate::run::{Receiver, Scene, Then};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const OTHER: &str = "fedcba9876543210fedcba9876543210";

fn file(receiver: &Receiver, topics: &[&str]) -> String {
    let topic = |name: &&str| {
        format!(
            "[topics.{name}]\npattern = \"{name}:{{id}}\"\n[topics.{name}.webhook]\nurl = \"http://{}/0\"\n\
             allow-addresses = [\"127.0.0.1\"]\nsecret = {{ file = \"secret\" }}\n",
            receiver.host()
        )
    };
    topics.iter().map(topic).collect()
}

/// Asks for this, and returns the status of the answer and its body.
fn ask(at: &str, method: &str, path: &str, token: &str) -> (u16, String) {
    let body = if method == "PUT" { r#"{"in": "1h"}"# } else { "" };
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nAuthorization: Bearer {token}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(at).expect("a connection");
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn timers_of_the_files_topics_alone_are_armed_and_cancelled_unless_all_are_allowed() {
    let receiver = Receiver::start(|_, _| Then::status(200)).await;
    let scene = Scene::new().await;
    let theirs = Topic::raw_named("theirs", "theirs:{id}").expect("a topic");
    let payload = bytes::Bytes::from_static(b"1");
    let armed = scene.schedule.arm(&theirs, ["1"], PATIENCE, &payload).await;
    assert!(armed.expect("an arming").is_armed());
    scene.write("keylapse.toml", &file(&receiver, &["orders"]));
    let (program, at) = scene.listening("run").await;
    let timer = |topic: &str| format!("/api/v1/topics/{topic}/timers/{topic}:1");
    eventually(PATIENCE, "its own topic", async || ask(&at, "PUT", &timer("orders"), "").0 == 201).await;
    for method in ["PUT", "DELETE"] {
        let (status, answer) = ask(&at, method, &timer("theirs"), "");
        assert!(status == 403 && answer.contains("--any-topic"), "{answer}");
    }
    // Another file, other topics.
    scene.write("keylapse.toml", &file(&receiver, &["orders", "theirs"]));
    program.signal("HUP");
    eventually(PATIENCE, "the other topic", async || ask(&at, "PUT", &timer("theirs"), "").0 < 300).await;
    drop(program);

    scene.write("keylapse.toml", &file(&receiver, &["orders"]));
    let (_program, at) = scene.listening_with(&["run", "--any-topic"]).await;
    assert_eq!(ask(&at, "DELETE", &timer("theirs"), "").0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_read_again_at_a_reload_and_bad_ones_refused() {
    let receiver = Receiver::start(|_, _| Then::status(200)).await;
    let scene = Scene::new().await;
    scene.write("keylapse.toml", &file(&receiver, &["orders"]));
    scene.write("token", TOKEN);
    let (program, at) = scene.listening_with(&["run", "--token-file", "token"]).await;
    let comes_in = |token: &str| ask(&at, "GET", "/metrics", token).0 == 200;
    assert!(comes_in(TOKEN) && !comes_in(OTHER));
    scene.write("token", "too short");
    program.signal("HUP");
    program.has_said("tokens and certificate were not reloaded", 1).await;
    assert!(comes_in(TOKEN));
    scene.write("token", &format!("shop act {OTHER} orders\nboard read {}", "1".repeat(32)));
    program.signal("HUP");
    program.has_said("tokens and certificate were reloaded", 1).await;
    assert!(!comes_in(TOKEN) && comes_in(&"1".repeat(32)));
    let timer = "/api/v1/topics/orders/timers/orders:1";
    eventually(PATIENCE, "an arming", async || ask(&at, "PUT", timer, OTHER).0 < 300).await;
    program.says("name=\"shop\"").await;
}
