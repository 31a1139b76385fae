//! Nodes that say what cannot be.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use keylapse::{Client, Error, ErrorKind, Schedule};
use keylapse_support::eventually;
use redis::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::load::topic;
use crate::support::PATIENCE;

/// A node that answers CLUSTER SHARDS, CLUSTER INFO and every script as it was told.
struct Forger {
    port: u16,
    says: Arc<Says>,
}

#[derive(Default)]
struct Says {
    shards: String,
    epoch: u64,
    script: String,
    /// How often it was asked for each.
    maps: AtomicUsize,
    scripts: AtomicUsize,
}

impl Forger {
    /// `{port}` stands for its own.
    async fn start(shards: &str, script: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let [shards, script] = [shards, script].map(|answer| answer.replace("{port}", &port.to_string()));
        Self::on(listener, Says { shards, script, ..Says::default() })
    }

    fn on(listener: TcpListener, says: Says) -> Self {
        let (port, says) = (listener.local_addr().unwrap().port(), Arc::new(says));
        let told = says.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, told.clone()));
            }
        });
        Self { port, says }
    }

    fn scripts(&self) -> usize {
        self.says.scripts.load(Ordering::Relaxed)
    }

    fn schedule(&self, patience: Duration) -> Schedule {
        let client = Client::new(&format!("redis+cluster://127.0.0.1:{}/", self.port)).unwrap();
        Schedule::new(client.retry_for(patience))
    }

    /// What an arm there ends with, within its patience and a little.
    async fn refusal(&self) -> Error {
        let schedule = self.schedule(Duration::from_millis(800));
        let begun = Instant::now();
        let refused = schedule.arm(&topic(1), ["1"], Duration::from_secs(1), &1).await.unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(10), "it took {:?}", begun.elapsed());
        refused
    }
}

async fn serve(mut stream: TcpStream, says: Arc<Says>) {
    let mut read = Vec::new();
    while stream.read_buf(&mut read).await.is_ok_and(|count| count > 0) {
        // A command comes in one piece here, and mostly alone.
        let mut rest = &read[..];
        let mut answers = String::new();
        while let Ok(Value::Array(words)) = redis::Parser::new().parse_value(rest) {
            let words: Vec<String> =
                words.into_iter().map(|word| redis::from_redis_value(word).unwrap()).collect();
            answers += &match &words[0][..] {
                "CLUSTER" if words[1] == "SHARDS" => {
                    says.maps.fetch_add(1, Ordering::Relaxed);
                    says.shards.clone()
                }
                "CLUSTER" if words[1] == "INFO" => bulk(&format!("cluster_current_epoch:{}\r\n", says.epoch)),
                "CLUSTER" => "-ERR unknown subcommand\r\n".into(),
                "EVALSHA" => {
                    says.scripts.fetch_add(1, Ordering::Relaxed);
                    says.script.clone()
                }
                _ => "+OK\r\n".into(),
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
    format!("*1\r\n{}", shard(port, &format!("*2\r\n:{first}\r\n:{last}\r\n")))
}

fn shard(port: &str, slots: &str) -> String {
    let node = ["endpoint", "127.0.0.1", "role", "master", "health", "online", "id"].map(bulk).concat();
    let (id, [slots_are, nodes, port_is]) =
        (bulk(&format!("id{port}")), ["slots", "nodes", "port"].map(bulk));
    let id = if port.starts_with('{') { bulk("abc") } else { id };
    format!("*4\r\n{slots_are}{slots}{nodes}*1\r\n*10\r\n{node}{id}{port_is}:{port}\r\n")
}

#[tokio::test]
async fn nodes_that_send_calls_round_and_round_end_a_callers_patience_and_not_the_machine() {
    let forger = Forger::start(&shards("{port}", 0, 16_383), "-MOVED 7 127.0.0.1:{port}\r\n").await;
    let refused = forger.refusal().await;
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    assert!(refused.to_string().contains("is being migrated"), "{refused}");
    let asked = forger.scripts();
    assert!(asked < 1000, "it was asked {asked} times in a second");
}

#[tokio::test]
async fn a_map_that_cannot_be_is_none() {
    for (map, said) in [
        (shards("0", 0, 16_383), "does not name the owners"),
        (shards("{port}", 0, 16_384), "does not name the owners"),
        ("*0\r\n".to_owned(), "does not name the owners"),
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
        assert!(refused.to_string().contains("an invalid address"), "{refused}");
    }
}

/// A slot has five digits at the most, and there are fewer.
#[tokio::test]
async fn a_call_that_is_sent_on_for_a_slot_that_there_is_not_is_refused() {
    for slot in [16_384, u16::MAX] {
        let forger =
            Forger::start(&shards("{port}", 0, 16_383), &format!("-MOVED {slot} 127.0.0.1:{{port}}\r\n"))
                .await;
        let refused = forger.refusal().await;
        assert!(refused.to_string().contains(&format!("of slot {slot}")), "{refused}");
    }
}

/// However many wait for the slot to have an owner.
#[tokio::test]
async fn who_finds_a_slot_without_owner_asks_together_with_the_others_and_not_all_the_time() {
    let forger = Forger::start(&shards("{port}", 0, 3), "+OK\r\n").await;
    let (schedule, begun) = (forger.schedule(Duration::from_secs(2)), Instant::now());
    let look = async |number: u32| schedule.look_up(&topic(8), [number.to_string()]).await.unwrap_err();
    let refused = join_all((0..100).map(look)).await;
    assert!(refused.iter().all(|error| error.kind() == ErrorKind::Unavailable), "{}", refused[0]);
    let (asked, seconds) = (forger.says.maps.load(Ordering::Relaxed), begun.elapsed().as_secs() + 1);
    assert!(asked as u64 <= 4 * seconds + 2, "it was asked {asked} times in {seconds} s");
}

/// As is one that is cut off from the others and does not know who has taken its place.
#[tokio::test]
async fn what_is_known_is_not_forgotten_for_a_node_that_knows_of_fewer_failovers() {
    let listeners =
        [TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap()];
    let [late, knows] =
        [&listeners[0], &listeners[1]].map(|one| one.local_addr().unwrap().port().to_string());
    let all = "*2\r\n:0\r\n:16383\r\n";
    let map = |late_has: &str, other_has: &str| {
        format!("*2\r\n{}{}", shard(&late, late_has), shard(&knows, other_has))
    };
    let down = || "-CLUSTERDOWN The cluster is down\r\n".to_owned();
    let [first, second] = listeners;
    let says = |shards, epoch| Says { shards, epoch, script: down(), ..Says::default() };
    let late = Forger::on(first, says(map(all, "*0\r\n"), 5));
    let knows = Forger::on(second, says(map("*0\r\n", all), 7));
    let schedule = late.schedule(Duration::from_secs(60));
    let one = topic(1);
    let arm = schedule.arm(&one, ["1"], Duration::from_secs(1), &1);
    let told = async {
        eventually(PATIENCE, "the other to be found", async || knows.scripts() > 0).await;
        let before = late.scripts();
        eventually(PATIENCE, "it to be asked ten times", async || knows.scripts() > 10).await;
        assert_eq!(late.scripts(), before);
    };
    tokio::select! {
        armed = arm => panic!("{armed:?}"),
        () = told => {}
    }
}

/// As it does not know of the others any more: it has failed, or was told to forget them.
#[tokio::test]
async fn a_node_that_knows_of_no_slots_is_not_believed_where_another_does() {
    let knows = Forger::start(&shards("{port}", 0, 16_383), "-ERR no\r\n").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let alone = format!("*1\r\n{}", shard(&port.to_string(), "*0\r\n"));
    let lone = Forger::on(listener, Says { shards: alone, epoch: 9, ..Says::default() });
    let client =
        Client::new(&format!("redis+cluster://127.0.0.1:{},127.0.0.1:{}/", lone.port, knows.port)).unwrap();
    let schedule = Schedule::new(client.retry_for(Duration::from_secs(2)));
    let refused = schedule.arm(&topic(1), ["1"], Duration::from_secs(1), &1).await;
    assert!(refused.is_err() && knows.scripts() > 0, "{refused:?}");
}
