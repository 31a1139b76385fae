//! What answers is no server that keylapse can use: said at once, and clearly.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::future::join_all;
use keylapse::{Client, Error, ErrorKind, Listener, Schedule};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

use super::scene::{Tally, orders};
use crate::server::support::refusal;

const PASSWORD: &str = "hunter2";

/// A TCP server that says the same to everybody; `None` ends the connection.
async fn stub(answer: Option<&'static str>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let Some(answer) = answer else { continue };
            tokio::spawn(async move {
                let mut request = [0; 4096];
                while client.read(&mut request).await.is_ok_and(|read| read > 0) {
                    if client.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// A server that speaks the protocol: it agrees to every command that sets a
/// connection up, and answers every other in the same way.
async fn speaking_stub(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (read, mut write) = client.into_split();
                let mut lines = BufReader::new(read).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    // Of the words of a request, only its name is looked at.
                    if !line.starts_with('*') {
                        continue;
                    }
                    lines.next_line().await.ok();
                    let name = lines.next_line().await.ok().flatten().unwrap_or_default();
                    let setting_up = matches!(name.as_str(), "AUTH" | "CLIENT" | "SELECT");
                    let answer = if setting_up { "+OK\r\n" } else { answer };
                    write.write_all(answer.as_bytes()).await.ok();
                }
            });
        }
    });
    address
}

/// What a producer and a listener are told there, each at once.
async fn told(address: SocketAddr) -> [Error; 2] {
    let url = format!("redis://someone:{PASSWORD}@{address}/");
    let connected = Schedule::connect(&url).await.map(|_| ()).unwrap_err();
    let started = Instant::now();
    let refused = refusal(Listener::builder(&url).on(orders(), Tally::default().handler())).await;
    assert!(started.elapsed() < Duration::from_secs(3), "not at once: {:?} {connected}", started.elapsed());
    let errors = [connected, refused];
    for error in &errors {
        assert!(!error.to_string().contains(PASSWORD), "{error}");
        assert!(!error.to_string().contains(|c: char| c.is_control()), "{error}");
    }
    errors
}

/// A listener would wait for as long as it takes.
#[tokio::test]
async fn connect_says_at_once_that_nobody_is_there_and_new_waits() {
    let started = Instant::now();
    let error = Schedule::connect("redis://127.0.0.1:1/").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    let patience = Duration::from_millis(700);
    let client = Client::new("redis://127.0.0.1:1/").unwrap().retry_for(patience);
    let (schedule, started) = (Schedule::new(client), Instant::now());
    let error = schedule.look_up(&orders(), ["1"]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(started.elapsed() > patience / 3, "it was tried again: {:?}", started.elapsed());
}

#[tokio::test]
async fn a_web_server_is_told_from_redis() {
    let page =
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<html>\x1b[31m";
    for error in told(stub(Some(page)).await).await {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("does not speak Redis' protocol"), "{error}");
    }
}

#[tokio::test]
async fn garbage_is_told_from_redis() {
    let banner = "SSH-2.0-OpenSSH_9.2p1\r\n";
    for garbage in [banner, "220 mail.example.com ESMTP\r\n", "\0\x01\x02\x03\r\n", "\r\n\r\n"] {
        for error in told(stub(Some(garbage)).await).await {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{garbage:?}: {error}");
        }
    }
}

/// Answers of the right form and the wrong sense.
#[tokio::test]
async fn a_server_that_agrees_to_everything_is_no_redis() {
    for answer in ["+OK\r\n", ":1\r\n", "*0\r\n", "*2\r\n:-1\r\n+x\r\n", "$-1\r\n", "*1\r\n*1\r\n*0\r\n"] {
        for error in told(speaking_stub(answer).await).await {
            assert_eq!(error.kind(), ErrorKind::Server, "{answer:?}: {error}");
            assert!(error.to_string().contains("unexpected"), "{error}");
        }
    }
}

/// As Redis 6.2 answers a script with flags, and one without scripts at all.
#[tokio::test]
async fn a_server_that_is_too_old_says_what_is_needed() {
    let old = "-ERR Error compiling script (new function): user_script:1: unexpected symbol near '#'\r\n";
    let without = "-ERR unknown command 'EVALSHA', with args beginning with: \r\n";
    for answer in [old, without] {
        for error in told(speaking_stub(answer).await).await {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.needs_operator() && error.to_string().contains("Redis 7.0"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_port_that_closes_every_connection_is_unreachable() {
    let address = stub(None).await;
    let error = Schedule::connect(&format!("redis://:{PASSWORD}@{address}/")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.is_transient() && error.to_string().contains(&address.to_string()), "{error}");
    assert!(!error.to_string().contains(PASSWORD), "{error}");
}

#[tokio::test]
async fn a_port_on_which_nobody_listens_and_a_host_that_does_not_exist_are_unreachable() {
    for (url, named) in [
        ("redis://:hunter2@127.0.0.1:1/", "127.0.0.1:1"),
        ("redis://:hunter2@no-such-host.invalid:7000/", "no-such-host.invalid:7000"),
        ("unix:///no/such/socket?pass=hunter2", "/no/such/socket"),
    ] {
        let error = Schedule::connect(url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(error.to_string().contains(named) && !error.to_string().contains(PASSWORD), "{error}");
    }
}

/// A port that accepts, as a frozen server's does, and never answers; or that
/// promises more than it ever sends.
#[tokio::test]
async fn a_server_that_never_answers_in_full_is_given_up_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let told = async |address: SocketAddr| {
        let started = Instant::now();
        let error = Schedule::connect(&format!("redis://{address}/")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        assert!(error.is_transient() && started.elapsed() < Duration::from_secs(6), "{error}");
    };
    let promising = stub(Some("*999999999999\r\n$536870912\r\nx")).await;
    tokio::join!(told(silent.local_addr().unwrap()), told(promising));
}

#[test]
fn urls_that_cannot_be_read_are_refused_without_being_quoted() {
    for url in [
        "",
        "hunter2",
        "redis://",
        "redis://:hunter2@",
        "http://hunter2",
        "redis://u:hunter2@h:port/",
        "redis://h:1/hunter2",
        "redis://h?hunter2",
        "redis://u:hunter2@h1,h2/",
        "rediss://u:hunter2@h/#insecure",
        "redis+cluster://u:hunter2@/",
        "rediss+sentinel://u:hunter2@h",
    ] {
        let builder = Listener::builder(url).on(orders(), Tally::default().handler());
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
        assert!(!error.to_string().contains(PASSWORD), "{error}");
    }
}

/// However many wait for a connection: else each would try in its turn, or all at once.
#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_server_that_hangs_shares_one_try_to_connect() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::new(&format!("redis://{}", silent.local_addr().unwrap())).unwrap();
    let schedule = Schedule::new(client.retry_for(Duration::from_secs(1)));
    let accepting = tokio::spawn(async move {
        let mut all = Vec::new();
        while let Ok((one, _)) = silent.accept().await {
            all.push(one);
            assert!(all.len() < 10, "that many tries");
        }
    });
    let topic = orders();
    let look =
        async |number: u32| schedule.look_up(&topic, [number.to_string()]).await.map(drop).unwrap_err();
    let refused = join_all((0..50).map(look)).await;
    assert!(refused.iter().all(|error| error.kind() == ErrorKind::Timeout), "{}", refused[0]);
    assert!(!accepting.is_finished());
}
