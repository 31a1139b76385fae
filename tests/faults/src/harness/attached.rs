//! Keys of other programs: writers of all kinds, and what is expected of each.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keylapse_support::{Version, connect};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

use super::{Cast, announcements};
use crate::clock::now;
use crate::job::{ATTACHED, partitions};
use crate::ledger::{Entry, Ledger, Life, Wrote};

/// No key lives longer, whatever happens to it.
const LONGEST_MS: u64 = 4000;
const LOOK: Duration = Duration::from_millis(100);
/// So much longer than its key a field of a hash lives that expires by itself.
const FIELD_MS: u64 = 60_000;
/// The seed of the writers is another than that of the plan.
const SALT: u64 = 0x0006_b657_9730;

/// Begins stories until it is told to stop, and ends when all keys have.
pub(super) async fn play(cast: &Cast, version: Version, url: &str, ledger: &Ledger, stop: &AtomicBool) {
    let lives = async {
        tell_stories(cast, version, url, ledger, stop).await;
        sleep(Duration::from_millis(LONGEST_MS)).await;
    };
    tokio::select! {
        () = lives => {}
        never = announcements(url, ATTACHED, None, ledger) => match never {},
        () = look(url, ledger) => unreachable!("it goes on for ever"),
    }
}

async fn tell_stories(cast: &Cast, version: Version, url: &str, ledger: &Ledger, stop: &AtomicBool) {
    let mut pace = interval(Duration::from_secs(1) / cast.keys_per_second);
    let (mut random, mut all) = (StdRng::seed_from_u64(cast.seed ^ SALT), JoinSet::new());
    let line = std::sync::Arc::new(Line { url: url.to_owned(), open: Mutex::default() });
    for number in 0_u64.. {
        pace.tick().await;
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let random = StdRng::seed_from_u64(random.random());
        let story = Story { number, version, random, line: line.clone() };
        all.spawn(story.tell(ledger.clone()));
        while all.try_join_next().is_some() {}
    }
    while all.join_next().await.is_some() {}
}

/// Writes down which keys are expected.
async fn look(url: &str, ledger: &Ledger) {
    let line = Line { url: url.to_owned(), open: Mutex::default() };
    let (mut ticks, mut known) = (interval(LOOK), HashSet::new());
    loop {
        ticks.tick().await;
        let mut seen = HashSet::new();
        for partition in partitions().filter(|name| name.contains(ATTACHED)) {
            let watched = line.ask(redis::cmd("HKEYS").arg(format!("{partition}:tracked"))).await;
            let keys = watched.and_then(|keys| Ok(redis::from_redis_value::<Vec<String>>(keys)?));
            seen.extend(keys.unwrap_or_default());
        }
        let new = |key: &&String| !known.contains(*key);
        seen.iter().filter(new).for_each(|key| ledger.write(Entry::Enrolled { key: key.clone() }));
        known = seen;
    }
}

/// A connection that is renewed when it has failed.
struct Line {
    url: String,
    open: Mutex<Option<MultiplexedConnection>>,
}

impl Line {
    async fn ask(&self, command: &Cmd) -> RedisResult<Value> {
        let mut connection = {
            let mut open = self.open.lock().await;
            match &*open {
                Some(connection) => connection.clone(),
                None => open.insert(connect(&self.url).await?).clone(),
            }
        };
        let answer = command.query_async(&mut connection).await;
        // Only an answer with a code came from the server.
        if answer.as_ref().is_err_and(|error| error.code().is_none()) {
            *self.open.lock().await = None;
        }
        answer
    }
}

/// What happens to one key, and to one more that it is renamed or copied to.
struct Story {
    number: u64,
    version: Version,
    random: StdRng,
    line: std::sync::Arc<Line>,
}

/// How a key is created with a deadline. Those of two words name the command that gives the deadline.
const CREATE: [&str; 15] = [
    "set pxat",
    "set px",
    "setex",
    "psetex",
    "set, pexpireat",
    "set, expire",
    "hset, pexpireat",
    "rpush, pexpire",
    "restore",
    "copy here",
    "rename here",
    "eval",
    "msetex",
    "hsetex",
    "hsetex, pexpireat",
];

/// What is done to it later.
const CHANGE: [&str; 23] = [
    "nothing",
    "nothing",
    "nothing",
    "nothing",
    "pexpireat",
    "pexpire",
    "expire",
    "pexpire in the past",
    "expire at once",
    "persist",
    "del",
    "unlink",
    "getex",
    "getex persist",
    "getdel",
    "del, if equal",
    "set over, if equal",
    "set over",
    "set over, endless",
    "setex over",
    "rename away",
    "rename",
    "copy",
];

impl Story {
    async fn tell(mut self, ledger: Ledger) {
        let key = format!("{ATTACHED}:{}", self.number);
        let how = *CREATE.choose(&mut self.random).expect("there are some");
        let until = self.later();
        self.create(&key, how, until, &ledger).await;
        // It ends with its only field: not by a deadline of its own.
        let changes = if how == "hsetex" { 0 } else { 2 };
        for _ in 0..changes {
            let change = *CHANGE.choose(&mut self.random).expect("there are some");
            // What is no string has no value to get.
            if change == "nothing" || change.starts_with("get") && how.contains("push") | how.contains("hset")
            {
                continue;
            }
            let after = self.random.random_range(0..1500);
            sleep(Duration::from_millis(after)).await;
            let until = self.later();
            self.change(&key, change, until, &ledger).await;
        }
    }

    /// In ms since 1970. Whole seconds are what some commands know.
    fn later(&mut self) -> u64 {
        now() / 1000 + self.random.random_range(100..LONGEST_MS - 1000)
    }

    async fn create(&mut self, key: &str, how: &str, until: u64, ledger: &Ledger) {
        let (at, ms) = (until.to_string(), until.saturating_sub(now() / 1000).max(1));
        let (rel, seconds) = (ms.to_string(), ms.div_ceil(1000));
        let life = Life::Until(until * 1000);
        let elsewhere = format!("elsewhere:{}", self.number);
        let say = async |words: &[&str], life| {
            let _: Wrote = self.write(&[(key, life)], words, ledger).await;
        };
        match how {
            "set pxat" => say(&["SET", key, "v", "PXAT", &at], life).await,
            "set px" => say(&["SET", key, "v", "PX", &rel], Life::For(ms)).await,
            "setex" => say(&["SETEX", key, &seconds.to_string(), "v"], Life::For(seconds * 1000)).await,
            "psetex" => say(&["PSETEX", key, &rel, "v"], Life::For(ms)).await,
            "msetex" if self.version.has("MSETEX") => {
                let other = format!("{key}-b");
                let words = ["MSETEX", "2", key, "v", &other, "v", "PXAT", &at];
                self.write(&[(key, life), (&other, life)], &words, ledger).await;
            }
            "hsetex" if self.version.has("HSETEX") => {
                say(&["HSETEX", key, "PXAT", &at, "FIELDS", "1", "f", "v"], Life::Endless).await;
            }
            "hsetex, pexpireat" if self.version.has("HSETEX") => {
                let later = (until + FIELD_MS).to_string();
                say(&["HSETEX", key, "PXAT", &later, "FIELDS", "1", "f", "v"], Life::Endless).await;
                say(&["PEXPIREAT", key, &at], life).await;
            }
            "msetex" | "hsetex" | "hsetex, pexpireat" => {}
            "eval" => {
                let script = "return redis.call('SET', KEYS[1], 'v', 'PXAT', ARGV[1])";
                say(&["EVAL", script, "1", key, &at], life).await;
            }
            "set, pexpireat" | "set, expire" | "hset, pexpireat" | "rpush, pexpire" => {
                match how {
                    "hset, pexpireat" => say(&["HSET", key, "f", "v"], Life::Endless).await,
                    "rpush, pexpire" => say(&["RPUSH", key, "v"], Life::Endless).await,
                    _ => say(&["SET", key, "v"], Life::Endless).await,
                }
                match how {
                    "set, expire" => {
                        say(&["EXPIRE", key, &seconds.to_string()], Life::For(seconds * 1000)).await;
                    }
                    "rpush, pexpire" => say(&["PEXPIRE", key, &rel], Life::For(ms)).await,
                    _ => say(&["PEXPIREAT", key, &at], life).await,
                }
            }
            _ => {
                // The other key is nobody's business; if it cannot be written, neither can this.
                let set = redis::cmd("SET").arg(&elsewhere).arg("v").arg("PXAT").arg(until).to_owned();
                if self.line.ask(&set).await.is_err() {
                    return;
                }
                match how {
                    "copy here" => say(&["COPY", &elsewhere, key, "REPLACE"], life).await,
                    "rename here" => say(&["RENAME", &elsewhere, key], life).await,
                    _ => self.restore(key, &elsewhere, until, ledger).await,
                }
            }
        }
    }

    async fn restore(&mut self, key: &str, from: &str, until: u64, ledger: &Ledger) {
        let Ok(Value::BulkString(dump)) = self.line.ask(redis::cmd("DUMP").arg(from)).await else { return };
        let mut restore = redis::cmd("RESTORE");
        restore.arg(key).arg(until).arg(dump).arg("ABSTTL").arg("REPLACE");
        self.send(&[(key, Life::Until(until * 1000))], "RESTORE", &restore, ledger).await;
    }

    async fn change(&mut self, key: &str, how: &str, until: u64, ledger: &Ledger) {
        let (at, ms) = (until.to_string(), until.saturating_sub(now() / 1000).max(1));
        let (seconds, life) = (ms.div_ceil(1000), Life::Until(until * 1000));
        let other = format!("{key}-b");
        let say = async |words: &[&str], life| {
            let _: Wrote = self.write(&[(key, life)], words, ledger).await;
        };
        match how {
            "pexpireat" => say(&["PEXPIREAT", key, &at], life).await,
            "pexpire" => say(&["PEXPIRE", key, &ms.to_string()], Life::For(ms)).await,
            "expire" => say(&["EXPIRE", key, &seconds.to_string()], Life::For(seconds * 1000)).await,
            "pexpire in the past" => say(&["PEXPIREAT", key, "1"], self.life_in_the_past()).await,
            "expire at once" => say(&["EXPIRE", key, "0"], self.life_in_the_past()).await,
            "persist" => say(&["PERSIST", key], Life::Endless).await,
            "del" => say(&["DEL", key], Life::Gone).await,
            "unlink" => say(&["UNLINK", key], Life::Gone).await,
            "getex" => say(&["GETEX", key, "PXAT", &at], life).await,
            "getex persist" => say(&["GETEX", key, "PERSIST"], Life::Endless).await,
            "getdel" => say(&["GETDEL", key], Life::Gone).await,
            "del, if equal" if self.version.has("DELEX") => {
                say(&["DELEX", key, "IFEQ", "v"], Life::Gone).await;
            }
            "del, if equal" if self.version.has("DELIFEQ") => say(&["DELIFEQ", key, "v"], Life::Gone).await,
            "set over, if equal" if self.version.has("SET IFEQ") => {
                say(&["SET", key, "w", "IFEQ", "v", "PXAT", &at], life).await;
            }
            "del, if equal" | "set over, if equal" => {}
            "set over" => say(&["SET", key, "w", "PXAT", &at], life).await,
            "set over, endless" => say(&["SET", key, "w"], Life::Endless).await,
            "setex over" => {
                say(&["SETEX", key, &seconds.to_string(), "w"], Life::For(seconds * 1000)).await;
            }
            "rename away" => say(&["RENAME", key, &format!("elsewhere:{key}")], Life::Gone).await,
            // Its deadline is made known first, so that the other's is.
            "rename" | "copy" => {
                let known = self.write(&[(key, life)], &["PEXPIREAT", key, &at], ledger).await;
                if known != Wrote::Done {
                    return;
                }
                if how == "rename" {
                    self.write(&[(key, Life::Gone), (&other, life)], &["RENAME", key, &other], ledger).await;
                } else {
                    self.write(&[(&other, life)], &["COPY", key, &other], ledger).await;
                }
            }
            other => unreachable!("{other} is no change"),
        };
    }

    /// What a key is that is given a deadline in the past.
    fn life_in_the_past(&self) -> Life {
        if self.version.expires_in_the_past() { Life::Expired } else { Life::Gone }
    }

    /// A command, and what each key is like when it is done.
    async fn write(&self, keys: &[(&str, Life)], words: &[&str], ledger: &Ledger) -> Wrote {
        let mut command = Cmd::new();
        words.iter().for_each(|word| {
            command.arg(word);
        });
        self.send(keys, words[0], &command, ledger).await
    }

    async fn send(&self, keys: &[(&str, Life)], how: &str, command: &Cmd, ledger: &Ledger) -> Wrote {
        for (key, life) in keys {
            let (key, how) = ((*key).to_owned(), how.to_owned());
            ledger.write(Entry::WriteAsked { key, how, life: *life });
        }
        let wrote = match self.line.ask(command).await {
            // Zero, or no value: there was no such key.
            Ok(Value::Int(0) | Value::Nil) => Wrote::Nothing,
            Ok(_) => Wrote::Done,
            Err(error) if error.code().is_some() => Wrote::Nothing,
            Err(_) => Wrote::Unknown,
        };
        let told = |key: &str| Entry::WriteTold { key: key.to_owned(), wrote, by: None, reached: None };
        keys.iter().for_each(|(key, _)| ledger.write(told(key)));
        wrote
    }
}
