//! Servers that are reached by other ways, or with commands and channels taken away:
//! what can work does, and what cannot says so.

use std::time::Duration;

use keylapse::{ErrorKind, Listener, Schedule};
use keylapse_support::{Server, skipped_on_a_cluster};

use super::scene::{Tally, orders, orders_at};
use crate::server::support::refusal;

const SOON: Duration = Duration::from_millis(100);

/// A producer and a listener at a URL: a timer runs, and its key is heard to expire.
async fn assert_works_at(url: &str) {
    let (schedule, tally, running) = orders_at(url).await;
    running.until_anchored().await;
    let _ = schedule.arm(&orders(), ["1"], SOON, &String::new()).await.unwrap();
    tally.until(1).await;
    running.until("its expiry to be heard", |stats| stats.total().announced == 1).await;
    running.stop().await.unwrap();
    tally.assert_each_once(1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unix_socket_works_as_an_address_does() {
    if skipped_on_a_cluster("a URL of one server is not for it") {
        return;
    }
    let folder = std::env::temp_dir().join(format!("keylapse-socket-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let socket = folder.join("redis.sock");
    let _server = Server::builder().config("unixsocket", socket.to_str().unwrap()).start().await;
    assert_works_at(&format!("unix://{}", socket.display())).await;
    std::fs::remove_dir_all(folder).unwrap();
}

/// Where the machine has it.
#[tokio::test(flavor = "multi_thread")]
async fn an_ipv6_address_works() {
    if skipped_on_a_cluster("a URL of one server is not for it") {
        return;
    }
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        eprintln!("no IPv6 here");
        return;
    }
    let server = Server::builder().config("bind", "127.0.0.1 ::1").start().await;
    assert_works_at(&format!("redis://[::1]:{}/", server.port())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_of_any_characters_logs_in() {
    let server = Server::start().await;
    server.cmd(&["ACL", "SETUSER", "odd", "on", ">p@ss:w/rd%?#ä", "~*", "&*", "+@all"]).await;
    assert_works_at(&server.url_for("odd", "p%40ss%3Aw%2Frd%25%3F%23%C3%A4")).await;
}

/// As on most managed services: the canary tells whether events flow.
#[tokio::test(flavor = "multi_thread")]
async fn without_config_everything_works() {
    let server = Server::builder().config("rename-command", "CONFIG \"\"").start().await;
    assert_works_at(&server.url()).await;
}

/// Commands that cannot be done without are named, each time with what is needed.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_was_renamed_is_named() {
    let server = Server::builder().config("rename-command", "EVALSHA \"\"").start().await;
    let error = Schedule::connect(&server.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.needs_operator() && error.to_string().contains("EVALSHA"), "{error}");
    let listener = Listener::builder(server.url()).on(orders(), Tally::default().handler());
    assert_eq!(refusal(listener).await.kind(), ErrorKind::Unsupported);
}

/// Without them new timers are found by sweeps.
#[tokio::test(flavor = "multi_thread")]
async fn without_sharded_channels_timers_fire_all_the_same() {
    let server = Server::builder().config("rename-command", "SSUBSCRIBE \"\"").start().await;
    assert_works_at(&server.url()).await;
}

/// An ACL that forgets the channels: nothing is heard, and every timer fires.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_the_channel_hears_nothing_and_misses_no_timer() {
    let server = Server::start().await;
    server.cmd(&["ACL", "SETUSER", "deaf", "on", ">pass", "~*", "resetchannels", "+@all"]).await;
    let (schedule, tally, running) = orders_at(&server.url_for("deaf", "pass")).await;
    for n in 0..10_u64 {
        let _ = schedule.arm(&orders(), [n.to_string()], SOON * 3, &String::new()).await.unwrap();
    }
    tally.until(10).await;
    assert_eq!((running.stats.total().announced, running.stats.listener().anchored), (0, 0));
    assert!(running.stats.listener().gaps > 0);
    running.stop().await.unwrap();
    tally.assert_each_once(10);
}
