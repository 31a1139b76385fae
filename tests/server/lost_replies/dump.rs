//! Everything that is in a server, in words.

use std::collections::{BTreeMap, BTreeSet};

use redis::{AsyncCommands, FromRedisValue, Value, aio::MultiplexedConnection, cmd};

/// The key from which scripts read the time.
pub(super) const CLOCK: &str = "app:clock";

/// Each key, and what it holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Dump(BTreeMap<String, BTreeSet<String>>);

impl Dump {
    pub(super) async fn take(line: &mut MultiplexedConnection) -> Self {
        let keys: Vec<Vec<u8>> = line.keys("*").await.expect("KEYS");
        let mut dump = BTreeMap::new();
        for key in keys.iter().filter(|key| &key[..] != CLOCK.as_bytes()) {
            dump.insert(shown(key), contents(line, key).await);
        }
        Self(dump)
    }

    /// What one has and the other has not.
    pub(super) fn differences(&self, other: &Self) -> Vec<String> {
        let none = BTreeSet::new();
        let keys: BTreeSet<_> = self.0.keys().chain(other.0.keys()).collect();
        let mut differences = Vec::new();
        for key in keys {
            let (here, there) = (self.0.get(key).unwrap_or(&none), other.0.get(key).unwrap_or(&none));
            differences.extend(here.difference(there).map(|entry| format!("+ {key}: {entry}")));
            differences.extend(there.difference(here).map(|entry| format!("- {key}: {entry}")));
        }
        differences
    }
}

async fn contents(line: &mut MultiplexedConnection, key: &[u8]) -> BTreeSet<String> {
    let kind: String = cmd("TYPE").arg(key).query_async(line).await.expect("TYPE");
    let mut read = match kind.as_str() {
        "string" => cmd("GET"),
        "hash" => cmd("HGETALL"),
        "zset" => cmd("ZRANGE"),
        other => panic!("keylapse keeps no {other}, but {} is one", shown(key)),
    };
    read.arg(key);
    if kind == "zset" {
        read.arg(0).arg(-1).arg("WITHSCORES");
    }
    let value: Value = read.query_async(line).await.expect("reading a key");
    if kind != "string" {
        return pairs(value);
    }
    // A canary lives by the real clock.
    let expires: i64 = cmd("PEXPIRETIME").arg(key).query_async(line).await.expect("PEXPIRETIME");
    let until = if shown(key).contains("{canary/") { (expires > 0).to_string() } else { expires.to_string() };
    let text = Vec::<u8>::from_redis_value(value).expect("a string");
    BTreeSet::from([format!("{} until {until}", shown(&text))])
}

fn pairs(value: Value) -> BTreeSet<String> {
    let flat = Vec::<Vec<u8>>::from_redis_value(value).expect("a flat list in RESP2");
    flat.chunks(2).map(|pair| format!("{} = {}", shown(&pair[0]), shown(&pair[1]))).collect()
}

fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
