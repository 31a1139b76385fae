//! Sequences of what is published, by the server and by anybody: canaries that are forged, replayed, out of order or of
//! the future, expiries of keys that live, gaps. The whole listener hears them, and the scripts run as they are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use keylapse_testserver::RedisReply;

use keylapse::attach::Treatment;
use keylapse::{Attached, Done, Expired, Failure, Lapse, Topic};
use keylapse_testing::TestBed;

use super::input::Input;

const COUNTER: &str = "keylapse:{heartbeat/0}";
const EXPIRED: &str = "__keyevent@0__:expired";
/// Steps of one sequence.
const STEPS: usize = 40;
/// Keys that are written.
const KEYS: usize = 6;
/// Long enough for every gap to end, and for every check to be made.
const AFTERWARDS: Duration = Duration::from_secs(30);
/// What is remembered in Redis of a key's expiries takes no more, however many canaries there were.
const HISTORY: usize = 1024;

/// No real expiry of an enrolled key is lost, nothing fires early, and what is remembered of it is bounded.
pub(crate) fn canaries(data: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let mut scene = Scene::begin(1 + usize::from(data.first().copied().unwrap_or(0) % 2)).await;
        let mut input = Input(data.get(1..).unwrap_or_default());
        for _ in 0..STEPS {
            if input.0.is_empty() {
                break;
            }
            scene.step(&mut input).await;
        }
        scene.judge().await;
    });
}

struct Scene {
    bed: TestBed,
    topic: Topic<Bytes>,
    /// The keys that were written, by when each is to expire, since the beginning.
    deadlines: BTreeMap<String, Duration>,
    /// How often each had run when it was written.
    ran: BTreeMap<String, usize>,
    /// Those that were enrolled since.
    enrolled: BTreeSet<String>,
    /// And those that somebody has deleted: these may fire or not.
    deleted: BTreeSet<String>,
    /// The names of canaries that the server has made.
    seen: Vec<(u64, u64)>,
}

impl Scene {
    async fn begin(listeners: usize) -> Self {
        let bed = TestBed::new();
        let topic = Topic::raw_named("fuzz", "k:{id}").expect("a pattern");
        for _ in 0..listeners {
            let attached = Attached::new(topic.clone()).untracked(Treatment::Ignore);
            let handler = |_: Lapse<Expired<Bytes>>| std::future::ready(Ok::<_, Failure>(Done));
            bed.listen(|builder| builder.attach(attached, handler)).await.expect("it listens");
        }
        bed.advance(Duration::from_millis(200)).await;
        Self {
            bed,
            topic,
            deadlines: BTreeMap::new(),
            ran: BTreeMap::new(),
            enrolled: BTreeSet::new(),
            deleted: BTreeSet::new(),
            seen: Vec::new(),
        }
    }

    async fn step(&mut self, input: &mut Input<'_>) {
        self.look();
        let count = self.deadlines.len();
        match input.byte() % 8 {
            0 | 1 => self.forge(input),
            2 => self.write(input.byte().into(), u64::from(input.byte()) * 20 + 1),
            3 => self.write(count, 5000),
            4 if count > 0 => self.say(&["PUBLISH", EXPIRED, &key(usize::from(input.byte()) % count)]),
            5 if count > 0 => {
                let gone = key(usize::from(input.byte()) % count);
                self.say(&["DEL", &gone]);
                self.deleted.insert(gone);
            }
            6 => self.say(&["CLIENT", "KILL", "TYPE", "pubsub"]),
            _ => {
                self.bed
                    .advance(Duration::from_millis(*input.pick(&[1, 2, 5, 20, 100, 400, 1100, 3000])))
                    .await;
            }
        }
        // Nothing happens in no time at all.
        self.bed.advance(Duration::from_millis(u64::from(input.byte() % 4))).await;
    }

    /// A canary that was never made, or not now.
    fn forge(&mut self, input: &mut Input<'_>) {
        let (last, before) = self.seen.last().copied().unwrap_or_default();
        let old =
            self.seen.get(usize::from(input.byte()) % self.seen.len().max(1)).copied().unwrap_or_default();
        let now = self.now();
        let near = u64::from(input.byte() % 16);
        let number = *input.pick(&[
            now + near,
            now - near,
            last + near,
            old.0,
            now + 1000,
            now + 86_400_000,
            u64::MAX,
            0,
        ]);
        let follows = *input.pick(&[last, before, old.1, number.saturating_sub(1), number, u64::MAX]);
        self.say(&["PUBLISH", EXPIRED, &format!("{COUNTER}:{number}:{follows}")]);
    }

    /// A new key, or one whose last end has been handled: it is written again, and is to run once more.
    fn write(&mut self, name: usize, ttl: u64) {
        let (key, runs) = (key(name % KEYS), self.bed.runs(&self.topic));
        let ran = runs.iter().filter(|run| run.key == key.as_bytes()).count();
        if let Some(before) = self.ran.get(&key) {
            let gone = self.bed.command(["EXISTS", &key]) == RedisReply::Int(0);
            if !gone || ran == *before || self.deleted.contains(&key) {
                return;
            }
            self.not_early(&key);
        }
        self.say(&["SET", &key, "v", "PX", &ttl.to_string()]);
        self.enrolled.remove(&key);
        self.ran.insert(key.clone(), ran);
        self.deadlines.insert(key, self.bed.elapsed() + Duration::from_millis(ttl));
    }

    /// Since it was written last it has not run before its deadline; how often it has run since.
    fn not_early(&self, key: &str) -> usize {
        let (deadline, before) = (self.deadlines[key], self.ran[key]);
        let runs = self.bed.runs(&self.topic);
        let of_it = runs.iter().filter(|run| run.key == key.as_bytes()).skip(before);
        of_it
            .inspect(|run| {
                assert!(run.began >= deadline, "{key} ran at {:?}, before {deadline:?}", run.began);
            })
            .count()
    }

    /// Which canary was made last, and which keys are enrolled.
    fn look(&mut self) {
        if let Some((number, before)) =
            self.text(&["GET", COUNTER]).as_deref().and_then(|name| name.split_once(':'))
        {
            let numbers = (number.parse().expect("a number"), before.parse().expect("a number"));
            if self.seen.last() != Some(&numbers) {
                self.seen.push(numbers);
            }
        }
        for (key, deadline) in &self.deadlines {
            let watched =
                || self.bed.command(["HEXISTS", "keylapse:{fuzz/0}:tracked", key]) == RedisReply::Int(1);
            if *deadline > self.bed.elapsed() && watched() {
                self.enrolled.insert(key.clone());
            }
        }
    }

    async fn judge(mut self) {
        self.look();
        self.bed.advance(AFTERWARDS).await;
        for key in self.deadlines.keys() {
            let ran = self.not_early(key);
            assert!(ran > 0 || !self.enrolled.contains(key) || self.deleted.contains(key), "{key} is lost");
        }
        for page in ["expiry_history", "expiry_history_old"] {
            for key in self.deadlines.keys() {
                let past = self.text(&["HGET", &format!("keylapse:{{fuzz/0}}:{page}"), key]);
                assert!(past.unwrap_or_default().len() <= HISTORY, "the history of {key}");
            }
        }
    }

    fn now(&self) -> u64 {
        let now = self.bed.now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        u64::try_from(now.as_millis()).expect("a time")
    }

    fn say(&self, words: &[&str]) {
        self.bed.command(words);
    }

    fn text(&self, words: &[&str]) -> Option<String> {
        match self.bed.command(words) {
            RedisReply::Bulk(text) => Some(String::from_utf8_lossy(&text).into_owned()),
            _ => None,
        }
    }
}

fn key(number: usize) -> String {
    format!("k:{number}")
}
