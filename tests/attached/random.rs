//! Writers that do to their keys whatever comes to their mind, and a plain subscriber who says what has expired.
//!
//! `make test-more SUITE=random-writers` is the long form: 100,000 expiries for each number of listeners, on each
//! server version at hand.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use keylapse_support::eventually;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};

use crate::crowd::{Truth, judge};
use crate::scene::{ALL_FLAGS, Notes, PATIENCE, Running, now, orders_with_values, server};

const WRITERS: u64 = 32;
/// Keys that each writer has for itself.
const KEYS: u64 = 4;
/// Of expiries, unless `KEYLAPSE_EXPIRIES` says another number.
const SHORT: u64 = 2000;

/// A writer and its keys.
struct Writer {
    line: MultiplexedConnection,
    number: u64,
    random: StdRng,
}

impl Writer {
    fn key(&mut self) -> String {
        format!("app:order:{}-{}", self.number, self.random.random_range(0..KEYS))
    }

    /// The answer does not matter: there may be no such key, or one of another type.
    async fn say(&mut self, command: &Cmd) -> Option<Value> {
        command.query_async(&mut self.line).await.ok()
    }

    async fn write(&mut self) {
        let (key, other) = (self.key(), self.key());
        let ms: u64 = if self.random.random_ratio(1, 20) { 1 } else { self.random.random_range(1..200) };
        let at = now() + ms;
        let words = match self.random.random_range(0..32) {
            0..5 => format!("SET {key} v PX {ms}"),
            5 => format!("SET {key} v PXAT {at}"),
            6 => format!("SET {key} v KEEPTTL"),
            7 => format!("PSETEX {key} {ms} v"),
            8 => format!("SETEX {key} 1 v"),
            9 => format!("GETEX {key} PX {ms}"),
            10 => format!("GETEX {key} PERSIST"),
            11 | 12 => format!("PEXPIRE {key} {ms}"),
            13 => format!("PEXPIRE {key} {ms} LT"),
            14 => format!("PEXPIREAT {key} {at}"),
            15 => format!("PEXPIREAT {key} 1"),
            16 => format!("PERSIST {key}"),
            17 => format!("DEL {key}"),
            18 => format!("GETDEL {key}"),
            19 => format!("RENAME {key} {other}"),
            20 => format!("COPY {key} {other} REPLACE"),
            21 => format!("HSET {key} f v"),
            22 => format!("EVAL return{{redis.call('SET',KEYS[1],'v','PX',ARGV[1])}} 1 {key} {ms}"),
            23 => format!("EXPIRE {key} 0"),
            // Some servers do not have these.
            24 | 25 => format!("MSETEX 2 {key} v {other} v PX {ms}"),
            26 => format!("SET {key} w IFEQ v PX {ms}"),
            27 => format!("DELEX {key} IFEQ v"),
            28 => format!("DELIFEQ {key} v"),
            29 => format!("HSETEX {key} PX {ms} FIELDS 1 f v"),
            _ => return self.restore(&key, ms).await,
        };
        self.say(&command(&words)).await;
        if words.starts_with("HSET ") {
            self.say(&command(&format!("PEXPIRE {key} {ms}"))).await;
        }
    }

    async fn restore(&mut self, key: &str, ms: u64) {
        if let Some(Value::BulkString(dump)) = self.say(&command(&format!("DUMP {key}"))).await {
            let restore = redis::cmd("RESTORE").arg(key).arg(ms).arg(dump).arg("REPLACE").to_owned();
            self.say(&restore).await;
        }
    }

    /// Until it is told to stop; then its keys end, each in its time.
    async fn write_on(mut self, stop: Arc<AtomicBool>) {
        while !stop.load(Ordering::Relaxed) {
            self.write().await;
            let pause = self.random.random_range(0..20);
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        for number in 0..KEYS {
            let key = format!("app:order:{}-{number}", self.number);
            while self.ends(&key).await.is_continue() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }

    /// Whether the key is gone; one without a deadline is deleted.
    async fn ends(&mut self, key: &str) -> ControlFlow<()> {
        match self.say(&command(&format!("PTTL {key}"))).await {
            Some(Value::Int(-2)) => return ControlFlow::Break(()),
            Some(Value::Int(-1)) => drop(self.say(&command(&format!("DEL {key}"))).await),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn command(words: &str) -> Cmd {
    let mut command = Cmd::new();
    words.split(' ').for_each(|word| {
        command.arg(word);
    });
    command
}

fn expiries() -> u64 {
    let said = std::env::var("KEYLAPSE_EXPIRIES").ok();
    said.map_or(SHORT, |text| text.parse().expect("KEYLAPSE_EXPIRIES is a number"))
}

/// With each set of flags, half of the expiries.
async fn play(listeners: usize) {
    for (seed, flags) in [(1, "Ex"), (2, ALL_FLAGS)] {
        let server = server(flags).await;
        let (truth, notes) = (Truth::of(&server).await, Notes::default());
        let attach = || {
            let topic = orders_with_values().scan_every(Duration::from_millis(200));
            Running::start(&server, |builder| builder.attach(topic, notes.handler()))
        };
        let listeners: Vec<_> = (0..listeners).map(|_| attach()).collect();
        for one in &listeners {
            eventually(PATIENCE, "the listeners to hear", async || one.stats.listener().anchored > 0).await;
        }
        let (stop, mut writers) = (Arc::new(AtomicBool::new(false)), Vec::new());
        for number in 0..WRITERS {
            let random = StdRng::seed_from_u64(seed << 32 | number);
            let writer = Writer { line: server.conn().await, number, random };
            writers.push(tokio::spawn(writer.write_on(stop.clone())));
        }
        let wanted = expiries() / 2;
        let long = PATIENCE + Duration::from_millis(wanted * 10);
        eventually(long, "keys to expire", async || truth.count() >= wanted).await;
        stop.store(true, Ordering::Relaxed);
        join_all(writers).await.into_iter().for_each(|ended| ended.unwrap());
        judge(flags, &server, truth, &notes, listeners).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_random_writers_each_expiry_is_handled_once_by_one_listener() {
    play(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_random_writers_each_expiry_is_handled_once_by_three_listeners() {
    play(3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_random_writers_each_expiry_is_handled_once_by_eight_listeners() {
    play(8).await;
}
