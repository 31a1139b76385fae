//! Nodes that say what cannot be.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use keylapse::{Client, Error, ErrorKind, Schedule};
use redis::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::load::topic;

/// A node that answers CLUSTER SHARDS and every script so; `{port}` stands for its own.
struct Forger {
    port: u16,
    scripts: Arc<AtomicUsize>,
}

impl Forger {
    async fn start(shards: &str, script: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, scripts) = (listener.local_addr().unwrap().port(), Arc::<AtomicUsize>::default());
        let fill = |answer: &str| answer.replace("{port}", &port.to_string());
        let (shards, script, count) = (fill(shards), fill(script), scripts.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, shards.clone(), script.clone(), count.clone()));
            }
        });
        Self { port, scripts }
    }

    /// What an arm there ends with, within its patience and a little.
    async fn refusal(&self) -> Error {
        let client = Client::new(&format!("redis+cluster://127.0.0.1:{}/", self.port)).unwrap();
        let schedule = Schedule::new(client.patience(Duration::from_millis(800)));
        let begun = Instant::now();
        let refused = schedule.arm(&topic(1), ["1"], Duration::from_secs(1), &1).await.unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(10), "it took {:?}", begun.elapsed());
        refused
    }
}

async fn serve(mut stream: TcpStream, shards: String, script: String, scripts: Arc<AtomicUsize>) {
    let mut read = Vec::new();
    while stream.read_buf(&mut read).await.is_ok_and(|count| count > 0) {
        // A command comes in one piece here, and mostly alone.
        let mut rest = &read[..];
        let mut answers = String::new();
        while let Ok(Value::Array(words)) = redis::Parser::new().parse_value(rest) {
            let words: Vec<String> =
                words.into_iter().map(|word| redis::from_redis_value(word).unwrap()).collect();
            answers += match &words[0][..] {
                "CLUSTER" if words[1] == "SHARDS" => &shards,
                "CLUSTER" => "-ERR unknown subcommand\r\n",
                "EVALSHA" => {
                    scripts.fetch_add(1, Ordering::Relaxed);
                    &script
                }
                _ => "+OK\r\n",
            };
            let length =
                words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()).len()).sum::<usize>();
            rest = &rest[format!("*{}\r\n", words.len()).len() + length..];
        }
        let left = rest.to_vec();
        read = left;
        if stream.write_all(answers.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// One node that has these slots.
fn shards(port: &str, first: u16, last: u16) -> String {
    let node =
        ["id", "abc", "endpoint", "127.0.0.1", "role", "master", "health", "online"].map(bulk).concat();
    format!(
        "*1\r\n*4\r\n{}*2\r\n:{first}\r\n:{last}\r\n{}*1\r\n*10\r\n{node}{}:{port}\r\n",
        bulk("slots"),
        bulk("nodes"),
        bulk("port")
    )
}

#[tokio::test]
async fn nodes_that_send_calls_round_and_round_end_a_callers_patience_and_not_the_machine() {
    let forger = Forger::start(&shards("{port}", 0, 16_383), "-MOVED 7 127.0.0.1:{port}\r\n").await;
    let refused = forger.refusal().await;
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    assert!(refused.to_string().contains("on its way"), "{refused}");
    let asked = forger.scripts.load(Ordering::Relaxed);
    assert!(asked < 1000, "it was asked {asked} times in a second");
}

#[tokio::test]
async fn a_map_that_cannot_be_is_none() {
    for (map, said) in [
        (shards("0", 0, 16_383), "does not say who owns"),
        (shards("{port}", 0, 16_384), "does not say who owns"),
        ("*0\r\n".to_owned(), "does not say who owns"),
        (shards("{port}", 0, 3), "serves slot"),
    ] {
        let refused = Forger::start(&map, "+OK\r\n").await.refusal().await;
        assert!(refused.to_string().contains(said), "{refused}");
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    }
}

#[tokio::test]
async fn a_call_that_is_sent_to_no_address_is_refused() {
    for to in ["127.0.0.1:0", "nowhere", "h\tx:7000"] {
        let forger = Forger::start(&shards("{port}", 0, 16_383), &format!("-MOVED 7 {to}\r\n")).await;
        let refused = forger.refusal().await;
        assert!(refused.to_string().contains("no address"), "{refused}");
    }
}
