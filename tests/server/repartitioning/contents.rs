//! What a topic may hold, sound and damaged, and whether it is where it belongs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use keylapse_support::Server;
use keylapse_wire::names::{DEFAULT_NAMESPACE, PartitionNames, WIRE_VERSION, partition_of};
use redis::{Pipeline, Value, from_redis_value};

pub(super) fn partition(index: usize, of: u32) -> PartitionNames {
    PartitionNames::new(DEFAULT_NAMESPACE, "order", index.try_into().unwrap(), of, false)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis().try_into().unwrap()
}

/// What is written of timers and dead letters, by its kind.
struct Fill {
    all: Pipeline,
    of: u32,
    now: u64,
}

impl Fill {
    fn hash(&mut self, what: &str, key: &str, name: &[u8], value: &[u8]) {
        let at = partition(partition_of(key.as_bytes(), self.of) as usize, self.of);
        self.all.cmd("HSET").arg(at.key(what)).arg(name).arg(value).ignore();
    }

    fn zset(&mut self, what: &str, key: &str, name: &[u8], score: String) {
        let at = partition(partition_of(key.as_bytes(), self.of) as usize, self.of);
        self.all.cmd("ZADD").arg(at.key(what)).arg(score).arg(name).ignore();
    }

    fn record(&mut self, what: &str, key: &str) {
        let record =
            [&[1][..], b"arming-x", &self.now.to_be_bytes(), format!("{{\"{key}\":7}}").as_bytes()].concat();
        self.hash(what, key, key.as_bytes(), &record);
    }

    fn state(&mut self, key: &str, held: u8, lost: u8) {
        let state = [&[1, held][..], b"token--x", &[0, 0, 0, 3, lost, 0, 2], &[0; 8], b"[]"].concat();
        self.hash("timer_states", key, key.as_bytes(), &state);
    }

    fn index(&mut self, what: &str, key: &str, ahead: i64, fraction: usize) {
        let at = self.now.checked_add_signed(ahead).unwrap();
        self.zset(what, key, key.as_bytes(), format!("{at}.{:03}", fraction % 1000));
    }

    fn timer(&mut self, id: usize) {
        let key = &format!("app:order:{id}");
        match id % 9 {
            // A retry; one whose holder is gone; one in quarantine.
            2 => self.state(key, 0, 0),
            3 => self.state(key, 1, 1),
            4 => self.state(key, 0, 2),
            5 => self.record("queued", key),
            _ => {}
        }
        match id % 9 {
            6 => return self.letter(key, id),
            // Each lacks what the others have.
            7 => return self.record(if id.is_multiple_of(2) { "timers" } else { "queued" }, key),
            8 if id.is_multiple_of(2) => return self.state(key, 0, 0),
            8 => return self.index("due", key, 1000, id),
            _ => self.record("timers", key),
        }
        match id % 9 {
            3 => self.index("due", key, -5000, id),
            4 => self.index("quarantine", key, 3_600_000, id),
            _ => self.index("due", key, 3_600_000, id),
        }
    }

    fn letter(&mut self, key: &str, id: usize) {
        let died = self.now - id as u64;
        let name = [&(id as u64).to_be_bytes()[..], &died.to_be_bytes(), key.as_bytes()].concat();
        self.hash("dead_letters", key, &name, format!("letter of {key}").as_bytes());
        self.zset("dead", key, &name, died.to_string());
    }
}

/// A topic of so many partitions that holds so many things.
pub(super) async fn fill(server: &Server, of: u32, count: usize) {
    let mut fill = Fill { all: redis::pipe(), of, now: now() };
    for index in 0..of as usize {
        let at = partition(index, of);
        fill.all.cmd("HSET").arg(at.key("meta")).arg("v").arg(WIRE_VERSION).arg("partitions").arg(of);
        fill.all.arg("trimmed").arg(index + 1).ignore();
        let tombstone = |age: u64| (fill.now - age).to_string() + ".5";
        fill.all.cmd("ZADD").arg(at.key("tombstones"));
        fill.all.arg(tombstone(1000)).arg(format!("crecent-{index}"));
        fill.all.arg(tombstone(500_000)).arg(format!("aold-{index}")).ignore();
        fill.all.cmd("HSET").arg(at.key("claimers")).arg("a slot").arg("of nobody").ignore();
    }
    (0..count).for_each(|id| fill.timer(id));
    fill.all.exec_async(&mut server.conn().await).await.unwrap();
}

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Everything that is said of keys, whichever partition says it.
#[derive(Debug)]
pub(super) struct Contents {
    said: BTreeMap<(&'static str, Vec<u8>), Vec<u8>>,
    /// By partition.
    tombstones: Vec<BTreeSet<Vec<u8>>>,
    trimmed: u64,
}

impl Contents {
    /// Of a topic of so many partitions, each of which has nothing that belongs into another.
    pub(super) async fn of(server: &Server, of: u32) -> Self {
        let mut all = Self { said: BTreeMap::new(), tombstones: Vec::new(), trimmed: 0 };
        let names: BTreeSet<String> =
            from_redis_value(server.cmd(&["KEYS", "keylapse:{order/*"]).await).unwrap();
        let allowed: BTreeSet<_> =
            (0..of as usize).flat_map(|index| partition(index, of).all().to_vec()).collect();
        for name in names.difference(&allowed) {
            assert!(name.ends_with(":meta"), "{name} is left of a partition that is not needed any more");
            let [version, count] =
                [server.cmd(&["HGET", name, "v"]).await, server.cmd(&["HGET", name, "partitions"]).await];
            let text = |value| from_redis_value::<u32>(value).unwrap();
            assert_eq!((text(version), text(count)), (WIRE_VERSION, of), "{name}");
        }
        for index in 0..of as usize {
            all.add(server, index, of).await;
        }
        all
    }

    async fn add(&mut self, server: &Server, index: usize, of: u32) {
        let at = partition(index, of);
        let hash = async |what: &str| -> Pairs {
            from_redis_value(server.cmd(&["HGETALL", at.key(what)]).await).unwrap()
        };
        let zset = async |what: &str| -> Pairs {
            let pairs = server.cmd(&["ZRANGE", at.key(what), "0", "-1", "WITHSCORES"]).await;
            let pairs: Vec<(Vec<u8>, f64)> = from_redis_value(pairs).unwrap();
            pairs.into_iter().map(|(name, score)| (name, score.to_string().into_bytes())).collect()
        };
        let meta: BTreeMap<String, String> =
            from_redis_value(server.cmd(&["HGETALL", at.key("meta")]).await).unwrap();
        assert_eq!(meta["v"], WIRE_VERSION.to_string(), "{meta:?}");
        assert_eq!(meta["partitions"], of.to_string(), "{meta:?}");
        for field in ["target_partitions", "repartition_id", "paused_before", "closed_at"] {
            assert!(!meta.contains_key(field), "{meta:?}");
        }
        self.trimmed += meta.get("trimmed").map_or(0, |count| count.parse().unwrap());
        let tombstones = zset("tombstones").await;
        self.tombstones.push(tombstones.into_keys().collect());
        for what in ["timers", "timer_states", "queued", "dead_letters"] {
            self.put(index, of, what, hash(what).await);
        }
        for what in ["due", "quarantine", "dead"] {
            self.put(index, of, what, zset(what).await);
        }
    }

    fn put(&mut self, index: usize, of: u32, what: &'static str, pairs: Pairs) {
        for (name, value) in pairs {
            let key = if ["dead", "dead_letters"].contains(&what) { &name[16..] } else { &name[..] };
            let shown = name.escape_ascii();
            assert_eq!(
                partition_of(key, of) as usize,
                index,
                "{what} {shown} is in partition {index} of {of}"
            );
            assert!(self.said.insert((what, name.clone()), value).is_none(), "{what} {shown} is there twice");
        }
    }

    #[track_caller]
    pub(super) fn assert_same(&self, after: &Self, when: &str) {
        assert!(!self.said.is_empty());
        for (name, value) in &self.said {
            let (what, shown) = (name.0, name.1.escape_ascii());
            assert_eq!(after.said.get(name), Some(value), "{when}: {what} {shown}");
        }
        assert_eq!(after.said.len(), self.said.len(), "{when}: something came of nothing");
        assert_eq!(after.trimmed, self.trimmed, "{when}: letters that were trimmed");
        let (from, to) = (self.tombstones.len(), after.tombstones.len());
        for (old, tombstones) in self.tombstones.iter().enumerate() {
            let recent = tombstones.iter().filter(|name| name.starts_with(b"crecent"));
            for (name, new) in recent.flat_map(|name| (0..to).map(move |new| (name, new))) {
                // Whether a key may belong into both.
                if (0..from * to).any(|hash| hash % from == old && hash % to == new) {
                    assert!(after.tombstones[new].contains(name), "{when}: a tombstone of {old} in {new}");
                }
            }
        }
    }
}

/// A field of a partition's `meta`.
pub(super) async fn meta(server: &Server, index: usize, field: &str) -> Option<String> {
    match server.cmd(&["HGET", partition(index, 1).key("meta"), field]).await {
        Value::Nil => None,
        text => Some(from_redis_value(text).unwrap()),
    }
}
