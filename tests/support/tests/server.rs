//! Tests that the harness can start, kill, suspend and restart servers.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use keylapse_support::{Binary, Fsync, Server, connect};
use redis::Value;

fn text(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

#[tokio::test]
async fn a_server_of_each_kind_starts_and_says_what_it_is() {
    for binary in Binary::all().expect("servers") {
        let version = binary.version();
        let server = Server::builder().binary(binary).start().await;
        assert_eq!(server.version(), version);
        let info = server.cmd(&["INFO", "server"]).await;
        let info = redis::from_redis_value::<String>(info).expect("text");
        assert!(info.contains(&format!("process_id:{}\r\n", server.pid())), "{info}");
        assert_eq!(info.contains("server_name:valkey"), version.is_valkey, "{info}");
    }
}

#[tokio::test]
async fn servers_that_start_together_do_not_share_a_port() {
    let start = || tokio::spawn(Server::start());
    let (a, b, c, d) = tokio::join!(start(), start(), start(), start());
    let servers = [a, b, c, d].map(|server| server.expect("started"));
    for (number, server) in servers.iter().enumerate() {
        server.cmd(&["SET", "number", &number.to_string()]).await;
    }
    for (number, server) in servers.iter().enumerate() {
        assert_eq!(server.cmd(&["GET", "number"]).await, text(&number.to_string()));
    }
}

#[tokio::test]
async fn what_a_killed_server_wrote_to_its_log_is_there_after_a_restart() {
    let mut server = Server::builder().aof(Fsync::Always).start().await;
    let (url, first) = (server.url(), server.pid());
    server.cmd(&["SET", "key", "kept"]).await;

    server.kill().await;
    assert!(connect(&url).await.is_err(), "nothing listens any more");
    server.restart().await;

    assert_eq!(server.url(), url);
    assert_ne!(server.pid(), first);
    assert_eq!(server.cmd(&["GET", "key"]).await, text("kept"));
}

#[tokio::test]
async fn a_server_keeps_nothing_unless_asked_to() {
    let mut server = Server::start().await;
    server.cmd(&["SET", "key", "lost"]).await;
    server.restart().await;
    assert_eq!(server.cmd(&["GET", "key"]).await, Value::Nil);
}

#[tokio::test]
async fn a_stopped_server_hangs_and_goes_on_where_it_was() {
    let server = Server::start().await;
    let mut connection = server.conn().await;
    server.stop();
    let get = tokio::spawn(async move {
        let answer: redis::RedisResult<String> = redis::cmd("PING").query_async(&mut connection).await;
        answer
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!get.is_finished(), "it answered although it was stopped");
    server.cont();
    assert_eq!(get.await.expect("no panic").expect("an answer"), "PONG");
}

#[tokio::test]
async fn a_stopped_server_can_be_ended() {
    let mut server = Server::start().await;
    server.stop();
    server.restart().await;
    server.stop();
    let started = Instant::now();
    drop(server);
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn settings_override_the_file() {
    let server = Server::builder().config("maxmemory", "100mb").config("save", "3600 1").start().await;
    let settings = server.cmd(&["CONFIG", "GET", "maxmemory", "save", "bind"]).await;
    let mut settings: Vec<(String, String)> = redis::from_redis_value(settings).expect("pairs");
    settings.sort();
    let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (&**name, &**value)).collect();
    assert_eq!(settings, [("bind", "127.0.0.1"), ("maxmemory", "104857600"), ("save", "3600 1")]);
}

#[tokio::test]
async fn a_server_that_refuses_its_settings_is_quoted() {
    let refused = Server::builder().config("maxmemory", "much").try_start().await;
    let error = refused.expect_err("not a size").to_string();
    assert!(error.contains("did not start") && error.contains("maxmemory"), "{error}");
}

#[test]
fn a_program_that_is_no_server_is_refused() {
    let error = Binary::at(Path::new("/bin/echo")).expect_err("no server").to_string();
    assert!(error.contains("/bin/echo") && error.contains("--version"), "{error}");
}
