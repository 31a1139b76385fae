//! Eight listeners, one of them late by a second, and keys that are written again as soon as they have expired.
//!
//! Without faults each expiry that the server counts is handled once: no more and no fewer.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use keylapse_support::{Direction, Proxy, Server, eventually};
use redis::aio::MultiplexedConnection;

use crate::scene::{ALL_FLAGS, Notes, PATIENCE, Running, orders, server};

const LISTENERS: usize = 8;
const LAG: Duration = Duration::from_secs(1);
/// How long each key lives, in ms; it is written again at once.
const LIVES: [u64; 15] = [5, 5, 7, 10, 15, 20, 30, 50, 75, 100, 150, 200, 350, 600, 1000];

/// Writes a key over and over, the next time as soon as it is gone, or over what has expired.
async fn write_on(mut line: MultiplexedConnection, key: String, ttl: u64, stop: Arc<AtomicBool>) {
    let mut round = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let mut set = redis::cmd("SET");
        set.arg(&key).arg(round).arg("PX").arg(ttl).exec_async(&mut line).await.unwrap();
        tokio::time::sleep(Duration::from_millis(ttl + round % 3)).await;
        if round.is_multiple_of(2) {
            while redis::cmd("EXISTS").arg(&key).query_async::<bool>(&mut line).await.unwrap() {}
        }
    }
    // The last life ends, too.
    while redis::cmd("EXISTS").arg(&key).query_async::<bool>(&mut line).await.unwrap() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// What a plain subscriber hears, by key.
pub(crate) struct Truth {
    heard: tokio::task::JoinHandle<HashMap<String, u64>>,
    count: Arc<AtomicU64>,
}

impl Truth {
    pub(crate) async fn of(server: &Server) -> Self {
        let client = redis::Client::open(server.plain_url()).unwrap();
        let (mut sink, mut messages) = client.get_async_pubsub().await.unwrap().split();
        sink.subscribe("__keyevent@0__:expired").await.unwrap();
        let count = Arc::new(AtomicU64::new(0));
        let counted = count.clone();
        let heard = tokio::spawn(async move {
            let _subscribed = sink;
            let mut heard = HashMap::new();
            while let Some(message) = messages.next().await {
                let key = String::from_utf8_lossy(message.get_payload_bytes()).into_owned();
                if key == "end" {
                    break;
                }
                if key.starts_with("app:order:") {
                    counted.fetch_add(1, Ordering::Relaxed);
                    *heard.entry(key).or_default() += 1;
                }
            }
            heard
        });
        Self { heard, count }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

async fn play(flags: &str, seconds: u64) {
    let server = server(flags).await;
    let truth = Truth::of(&server).await;
    let late = Proxy::before(&server).await;
    let notes = Notes::default();
    let attach =
        |url: &str| Running::at(url, |builder| builder.attach(orders().concurrency(50), notes.handler()));
    let mut listeners: Vec<_> = (1..LISTENERS).map(|_| attach(&server.app_url())).collect();
    listeners.push(attach(&late.app_url()));
    for listener in &listeners {
        eventually(PATIENCE, "the listeners to hear", async || listener.stats.listener().anchored > 0).await;
    }
    late.delay(Direction::Replies, LAG);
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for (number, ttl) in LIVES.into_iter().enumerate() {
        writers.push(tokio::spawn(write_on(
            server.conn().await,
            format!("app:order:{number}"),
            ttl,
            stop.clone(),
        )));
    }
    tokio::time::sleep(Duration::from_secs(seconds)).await; // for so long it is played
    stop.store(true, Ordering::Relaxed);
    join_all(writers).await;
    judge(flags, &server, truth, &notes, listeners).await;
}

/// Once the writers have ended: each expiry that a plain subscriber heard was handled once.
pub(crate) async fn judge(
    flags: &str,
    server: &Server,
    truth: Truth,
    notes: &Notes,
    listeners: Vec<Running>,
) {
    server.cmd(&["PUBLISH", "__keyevent@0__:expired", "end"]).await;
    let heard = truth.heard.await.unwrap();
    let expiries = heard.values().sum::<u64>();
    eventually(PATIENCE, "all to be handled", async || notes.count() as u64 >= expiries).await;
    // Whatever the latest would add, it has added once it has heard this.
    let known = |listeners: &[Running]| -> u64 {
        listeners.iter().map(|one| one.attached().known + one.attached().recorded).sum()
    };
    let all = expiries * listeners.len() as u64;
    eventually(PATIENCE, "everybody to have noted all", async || known(&listeners) >= all).await;
    let mut handled: HashMap<String, u64> = HashMap::new();
    notes.runs().iter().for_each(|run| *handled.entry(run.key.clone()).or_default() += 1);
    let sums: Vec<_> = listeners.iter().map(Running::attached).collect();
    for sum in &sums {
        assert_eq!((sum.ambiguous, sum.stale, sum.recovered), (0, 0, 0), "{sum:?}");
    }
    let differ = |key: &&String| handled.get(*key) != heard.get(*key);
    let wrong: HashSet<_> = handled.keys().chain(heard.keys()).filter(differ).collect();
    let wrong: Vec<_> = wrong.into_iter().map(|key| (key, handled.get(key), heard.get(key))).collect();
    assert!(wrong.is_empty(), "key, times handled, times expired: {wrong:?}; {sums:?}");
    let (version, by, keys) = (server.version(), listeners.len(), heard.len());
    println!("{version}, {flags}: {expiries} expiries of {keys} keys, each handled once by one of {by}");
    for listener in listeners {
        listener.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_listeners_handle_each_expiry_once_with_ex_alone() {
    play("Ex", 8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_listeners_handle_each_expiry_once_with_all_flags() {
    play(ALL_FLAGS, 8).await;
}
