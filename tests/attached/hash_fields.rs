//! Fields of hashes that expire by themselves (Redis 7.4, Valkey 9): what servers tell of them, which is why they are
//! not attached to.

use std::time::{Duration, Instant};

use futures::StreamExt;
use keylapse_support::{Server, eventually, skipped};
use redis::Value;

use crate::scene::{Harness, Notes, PATIENCE, in_time, now, order, orders_with_values, servers};

/// What a server tells of its keys.
struct Told {
    messages: redis::aio::PubSubStream,
    _kept: redis::aio::PubSubSink,
}

impl Told {
    async fn by(server: &Server) -> Self {
        let client = redis::Client::open(server.plain_url()).unwrap();
        let (mut sink, messages) = client.get_async_pubsub().await.unwrap().split();
        sink.psubscribe("__keyevent@0__:*").await.unwrap();
        Self { messages, _kept: sink }
    }

    /// Which events of this key there were until now.
    async fn of(&mut self, server: &Server, key: &str) -> Vec<String> {
        let end = format!("the end {}", now());
        server.cmd(&["SET", &end, "x"]).await;
        let mut events = Vec::new();
        loop {
            let next = tokio::time::timeout(PATIENCE, self.messages.next()).await;
            let message = next.expect("the end is heard").expect("the subscription stands");
            let about: String = message.get_payload().unwrap();
            if about == end {
                return events;
            }
            if about == key {
                events.push(message.get_channel_name().trim_start_matches("__keyevent@0__:").to_owned());
            }
        }
    }

    /// How often fields of this key were said to have expired.
    async fn count(&mut self, server: &Server, key: &str) -> usize {
        self.of(server, key).await.iter().filter(|event| *event == "hexpired").count()
    }
}

/// The servers at hand whose hashes have such fields.
async fn with_expiring_fields() -> Vec<Server> {
    let mut all = Vec::new();
    for binary in servers() {
        let server = Server::builder().binary(binary).config("notify-keyspace-events", "KEA").start().await;
        let known = server.cmd(&["COMMAND", "INFO", "HPEXPIRE"]).await;
        match known {
            Value::Array(found) if matches!(found[..], [Value::Array(_)]) => all.push(server),
            _ => skipped(&format!("{}: its hashes have no fields that expire", server.version())),
        }
    }
    all
}

/// A hash of `a`, which is due though the server has not looked at it, and `b`.
async fn due(server: &Server, key: &str) {
    server.cmd(&["DEL", key]).await;
    server.cmd(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]).await;
    server.cmd(&["HSET", key, "a", "1", "b", "2"]).await;
    server.cmd(&["HPEXPIRE", key, "20", "FIELDS", "1", "a"]).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
}

#[tokio::test]
async fn an_event_of_fields_names_the_hash_alone_and_is_one_for_many() {
    for server in with_expiring_fields().await {
        let mut told = Told::by(&server).await;
        let names: Vec<_> = (0..1000).map(|n| format!("f{n}")).collect();
        let mut hset = vec!["HSET".to_owned(), "h".to_owned(), "stays".to_owned(), "1".to_owned()];
        hset.extend(names.iter().flat_map(|name| [name.clone(), "1".to_owned()]));
        server.cmd(&hset).await;
        let mut expire = ["HPEXPIRE", "h", "20", "FIELDS", "1000"].map(str::to_owned).to_vec();
        expire.extend(names);
        server.cmd(&expire).await;
        eventually(PATIENCE, "all to go", async || server.cmd(&["HLEN", "h"]).await == Value::Int(1)).await;
        let heard = told.count(&server, "h").await;
        assert!((1..100).contains(&heard), "{}: {heard} of 1,000", server.version());
    }
}

/// To Redis, a field that is due and met by a write is one that the writer replaces or removes.
#[tokio::test]
async fn a_field_that_is_due_may_go_without_a_word() {
    for server in with_expiring_fields().await {
        let mut told = Told::by(&server).await;
        for write in [&["HSET", "h", "a", "3"][..], &["HDEL", "h", "a"]] {
            due(&server, "h").await;
            server.cmd(write).await;
            server.cmd(&["DEBUG", "SET-ACTIVE-EXPIRE", "1"]).await;
            let is_silent = !server.version().is_valkey;
            if is_silent {
                // Should the server tell of it later, then at the latest with what is due after it.
                server.cmd(&["HPEXPIRE", "h", "20", "FIELDS", "1", "b"]).await;
            }
            let until = Instant::now() + PATIENCE;
            let mut heard = told.count(&server, "h").await;
            while heard == 0 && Instant::now() < until {
                tokio::time::sleep(Duration::from_millis(20)).await;
                heard += told.count(&server, "h").await;
            }
            let left = server.cmd(&["HMGET", "h", "b"]).await;
            assert_eq!(
                left == Value::Array(vec![Value::Nil]),
                is_silent,
                "what was told is of the other field"
            );
            heard += told.count(&server, "h").await;
            assert_eq!(heard, 1, "{}, {write:?}", server.version());
        }
    }
}

#[tokio::test]
async fn reading_a_field_that_is_due_makes_only_redis_say_so() {
    for server in with_expiring_fields().await {
        let mut told = Told::by(&server).await;
        for (read, says) in
            [(&["HGET", "h", "a"][..], true), (&["HPEXPIRETIME", "h", "FIELDS", "1", "a"], false)]
        {
            due(&server, "h").await;
            told.of(&server, "h").await;
            server.cmd(read).await;
            let heard = told.of(&server, "h").await;
            let expected: &[&str] = if says && !server.version().is_valkey { &["hexpired"] } else { &[] };
            assert_eq!(heard, expected, "{}: {read:?}", server.version());
        }
    }
}

/// With its last field a hash is deleted, and does not expire.
#[tokio::test]
async fn a_hash_whose_fields_have_expired_does_not_fire() {
    for server in with_expiring_fields().await {
        let mut told = Told::by(&server).await;
        let topic = orders_with_values().keep_all_fields();
        let harness = Harness::on(server, topic, Notes::handler).await;
        for id in ["fields alone", "both"] {
            harness.cmd(&["HSET", &order(id), "a", "1"]).await;
        }
        let deadline = in_time(2500, 1000, async |deadline| {
            harness.cmd(&["PEXPIREAT", &order("both"), &deadline.to_string()]).await;
            harness.until_watched("both", deadline).await;
        })
        .await;
        for id in ["fields alone", "both"] {
            harness.cmd(&["HPEXPIRE", &order(id), "20", "FIELDS", "1", "a"]).await;
        }
        harness.pass(deadline).await;
        for id in ["fields alone", "both"] {
            assert!(harness.of(id).is_empty(), "{:?}", harness.of(id));
            let events = told.of(&harness.server, &order(id)).await;
            let ends: Vec<_> = events
                .into_iter()
                .filter(|event| event.contains("del") || event.contains("expired"))
                .collect();
            // The first to be asked for has all; of the second they were passed over.
            assert!(ends.is_empty() && id == "both" || ends == ["hexpired", "del"], "{id}: {ends:?}");
        }
        harness.listener.stop().await;
    }
}
