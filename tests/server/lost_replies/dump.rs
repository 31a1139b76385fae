//! Everything that is in a server, in words.

use std::collections::{BTreeMap, BTreeSet};

use redis::{aio::MultiplexedConnection, cmd};

use super::call::bytes;
use super::step::Step;

/// The key from which scripts read the time.
pub(super) const CLOCK: &str = "app:clock";

/// Reads all keys, each as its name, its type, its entries and when it expires.
const READ_ALL: &str = "
    local all = {}
    for _, key in ipairs(redis.call('KEYS', '*')) do
      local kind, entries = redis.call('TYPE', key).ok
      if kind == 'hash' then entries = redis.call('HGETALL', key)
      elseif kind == 'zset' then entries = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
      elseif kind == 'list' then entries = { 'members', table.concat(redis.call('LRANGE', key, 0, -1), ' ') }
      else entries = { redis.call('GET', key), string.format('%.0f', redis.call('PEXPIRETIME', key)) }
      end
      all[#all + 1] = { key, entries }
    end
    return all
";

/// Each key, and what it holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Dump(BTreeMap<String, BTreeSet<String>>);

impl Dump {
    pub(super) async fn take(line: &mut MultiplexedConnection) -> Self {
        let read = cmd("EVAL").arg(READ_ALL).arg(0).query_async(line).await;
        let all: Vec<(Vec<u8>, Vec<Vec<u8>>)> = read.expect("all keys");
        let keys = all.into_iter().filter(|(key, _)| key != CLOCK.as_bytes());
        Self(keys.map(|(key, entries)| (shown(&key), pairs(&key, &entries))).collect())
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

fn pairs(key: &[u8], entries: &[Vec<u8>]) -> BTreeSet<String> {
    // Canaries, and what remembers that something was handed on, live by the real clock.
    let lives_by_itself = ["{heartbeat/", ":forwarded:"].iter().any(|part| shown(key).contains(part));
    let pair = |pair: &[Vec<u8>]| match pair {
        [field, _] if lives_by_itself => shown(field),
        [field, value] => format!("{} = {}", shown(field), shown(value)),
        _ => panic!("{} has half an entry", shown(key)),
    };
    entries.chunks(2).map(pair).collect()
}

fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// What holds at any moment, and what repeats go by.
impl Dump {
    fn entries(&self, name: &str) -> BTreeMap<&str, &str> {
        let entries = self.0.get(&format!("keylapse:{{t/0}}:{name}")).into_iter().flatten();
        entries.filter_map(|entry| entry.split_once(" = ")).collect()
    }

    /// Whether there is a timer or a tombstone of this arming.
    pub(super) fn knows_arming(&self, number: u8) -> bool {
        let id = shown(&bytes(number));
        let is_record = |record: &&&str| record.starts_with(&format!("\\x01{id}"));
        let kept = [self.entries("timers"), self.entries("queued")];
        kept.iter().any(|records| records.values().any(|record| is_record(&record)))
            || self.entries("tombstones").contains_key(&*format!("a{id}"))
    }

    /// A timer has a record, and one place in one index; nothing is kept behind
    /// nothing, and no arming is in two places.
    pub(super) fn assert_sound(&self, story: &impl Fn() -> String) {
        let (due, quarantine, rec) =
            (self.entries("due"), self.entries("quarantine"), self.entries("timers"));
        let (run, next, tried) =
            (self.entries("timer_states"), self.entries("queued"), self.entries("tried"));
        for key in due.keys().chain(quarantine.keys()).chain(run.keys()).chain(next.keys()) {
            assert!(rec.contains_key(key), "{key} has no record\n{}\n{self:#?}", story());
        }
        for (key, record) in &rec {
            let places = u8::from(due.contains_key(key)) + u8::from(quarantine.contains_key(key));
            assert_eq!(places, 1, "{key} in the indexes\n{}\n{self:#?}", story());
            // A timer whose state shows an earlier attempt has a member in `tried`, with its score in the index.
            let fresh = ["\\x00\\x00\\x00\\x01", &"\\x00".repeat(11)].concat();
            let was_tried = run.get(key).is_some_and(|state| !state.ends_with(&fresh));
            let score = due.get(key).or(quarantine.get(key)).filter(|_| was_tried);
            assert_eq!(
                tried.get(&*format!(">{key}")),
                score,
                "{key} was tried: {was_tried}\n{}\n{self:#?}",
                story()
            );
            let twice = next.get(key).is_some_and(|kept| kept[..12] == record[..12]);
            assert!(!twice, "{key} is kept behind itself\n{}\n{self:#?}", story());
        }
    }

    /// The same, less what a repeat is to renew.
    pub(super) fn but_for_leases(&self, call: &Step) -> Self {
        let mut dump = self.0.clone();
        if matches!(call, Step::Claim { .. } | Step::Renew(..)) {
            for name in ["keylapse:{t/0}:due", "keylapse:{t/0}:quarantine", "keylapse:{t/0}:tried"] {
                let keys = self.0.get(name).into_iter().flatten();
                let keys =
                    keys.map(|entry| entry.split(" = ").next().unwrap_or_default().to_owned()).collect();
                dump.insert(name.to_owned(), keys);
            }
        }
        Self(dump)
    }
}
