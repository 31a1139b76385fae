//! A cluster, a program that writes keys and knows nothing of keylapse, and listeners whose handlers take notes.

use std::collections::{HashMap, HashSet};
use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use keylapse::handler::Handler;
use keylapse::health::EventMode;
use keylapse::stats::AttachedStats;
use keylapse::{Attached, Done, Expired, Expiry, Failure, Lapse, Listener, Topic};
use keylapse_support::{Plain, eventually};
use keylapse_testing::{LocalCluster, LocalNode, RedisReply};
use tokio::task::JoinHandle;

use crate::load::{AROUND, Times};
use crate::reach::{as_app, assert_nothing_refused, cluster_builder};
use crate::support::PATIENCE;
pub(crate) use crate::support::Running;

/// The topic of these tests: each key `app:order:<id>`, with its value.
pub(crate) fn orders() -> Attached<Bytes> {
    let topic = Topic::raw_named("orders", "app:order:{id}").unwrap().partitions(4);
    Attached::new(topic).keep_values(64).scan_every(Duration::from_secs(2))
}

/// Three primaries without replicas.
pub(crate) async fn three() -> LocalCluster {
    cluster_builder().replicas_per_primary(0).start().await.unwrap()
}

/// What one run of a handler was told.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) value: Option<Bytes>,
    pub(crate) expiry: Expiry,
    at: SystemTime,
    /// In ms; negative: early.
    pub(crate) late: i64,
}

/// The notes of all handlers of a test, by key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    runs: Arc<Mutex<HashMap<String, Vec<Run>>>>,
    /// When servers were replaced that may have known of runs what their successors did not.
    harm: Arc<Mutex<Times>>,
}

impl Notes {
    pub(crate) fn handler(&self) -> impl Handler<Expired<Bytes>> + use<> {
        let notes = self.clone();
        move |lapse: Lapse<Expired<Bytes>>| {
            let expired = lapse.payload();
            let at = SystemTime::now();
            let late = match at.duration_since(lapse.deadline()) {
                Ok(late) => late.as_millis() as i64,
                Err(early) => -1 - early.duration().as_millis() as i64,
            };
            let run = Run { value: expired.value().cloned(), expiry: expired.expiry(), at, late };
            let key = String::from_utf8_lossy(lapse.key()).into_owned();
            notes.runs.lock().unwrap().entry(key).or_default().push(run);
            ready(Ok::<_, Failure>(Done))
        }
    }

    /// A listener whose handlers take these notes.
    pub(crate) fn listen(&self, url: &str) -> Running {
        Running::start(Listener::builder(as_app(url)).attach(orders(), self.handler()))
    }

    pub(crate) fn all(&self) -> HashMap<String, Vec<Run>> {
        self.runs.lock().unwrap().clone()
    }

    /// Does this harm. Of what ran shortly before, or until shortly after, the servers may know nothing any more.
    pub(crate) async fn harm<T>(&self, work: impl Future<Output = T>) -> T {
        let begun = SystemTime::now() - AROUND;
        let done = work.await;
        self.harm.lock().unwrap().push(begun..=SystemTime::now() + AROUND);
        done
    }

    /// Waits until handlers have run for so many keys.
    #[track_caller]
    pub(crate) fn until(&self, keys: usize) -> impl Future<Output = ()> + '_ {
        eventually(2 * PATIENCE, "the handlers to run", async move || self.runs.lock().unwrap().len() >= keys)
    }

    /// Waits until all orders of a stream have run.
    pub(crate) async fn until_all(&self, count: usize) {
        self.until_these((0..count).map(order)).await;
    }

    /// Waits until all of these keys have run.
    pub(crate) async fn until_these(&self, keys: impl IntoIterator<Item = String>) {
        let keys: Vec<_> = keys.into_iter().collect();
        let all_have = tokio::time::timeout(PATIENCE, self.until(keys.len())).await;
        let all = self.all();
        let missing: Vec<_> = keys.iter().filter(|key| !all.contains_key(*key)).collect();
        assert!(all_have.is_ok(), "lost: {missing:?}");
    }

    /// How many keys have run more than once, and what became of them.
    pub(crate) fn doubled(&self) -> Vec<(String, Vec<Run>)> {
        self.all().into_iter().filter(|(_, runs)| runs.len() > 1).collect()
    }

    /// So many keys have all run, none before its time, and twice only what was told so, or began at the time of harm.
    pub(crate) fn assert_explained(&self, keys: usize, written_again: &HashSet<String>) {
        let all = self.all();
        assert_eq!(all.len(), keys);
        let harm = self.harm.lock().unwrap();
        let mut doubled = self.doubled();
        doubled.retain(|(key, runs)| {
            !written_again.contains(key) && !harm.iter().any(|time| time.contains(&runs[0].at))
        });
        let unexplained = doubled
            .iter()
            .find(|(_, runs)| runs.iter().filter(|run| run.expiry == Expiry::Announced).count() > 1);
        assert!(unexplained.is_none(), "{unexplained:?}");
        let early = all.iter().find(|(_, runs)| runs.iter().any(|run| run.late < 0));
        assert!(early.is_none(), "early: {early:?}");
        let mut late: Vec<_> = all.values().flatten().map(|run| run.late).collect();
        late.sort_unstable();
        let of = |expiry| all.values().flatten().filter(|run| run.expiry == expiry).count();
        println!(
            "{keys} keys, {} doubled; {} heard, {} ambiguous, {} recovered; late p50 {} p99 {} max {} ms",
            doubled.len(),
            of(Expiry::Announced),
            of(Expiry::Ambiguous),
            of(Expiry::Recovered),
            late[late.len() / 2],
            late[late.len() * 99 / 100],
            late[late.len() - 1]
        );
    }

    pub(crate) fn assert_each_once(&self, keys: usize) {
        let doubled = self.doubled();
        assert!(doubled.is_empty(), "{} of {keys} twice: {:?}", doubled.len(), doubled.first());
        let all = self.all();
        assert_eq!(all.len(), keys);
        let early = all.values().flatten().filter(|run| run.late < 0).count();
        assert_eq!(early, 0, "early");
    }
}

/// All of that.
pub(crate) struct Scene {
    pub(crate) cluster: LocalCluster,
    pub(crate) notes: Notes,
    pub(crate) listeners: Vec<Running>,
}

impl Scene {
    /// With so many listeners, who hear all.
    pub(crate) async fn start(cluster: LocalCluster, listeners: usize) -> Self {
        let _ = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_test_writer().try_init();
        let mut scene = Self { cluster, notes: Notes::default(), listeners: Vec::new() };
        for _ in 0..listeners {
            scene.listen(&scene.cluster.url());
        }
        scene.until(EventMode::Changes).await;
        scene
    }

    /// Another listener, at this URL.
    pub(crate) fn listen(&mut self, url: &str) {
        let listener = self.notes.listen(url);
        self.listeners.push(listener);
    }

    /// Waits until all listeners hear this of all servers.
    #[track_caller]
    pub(crate) fn until(&self, mode: EventMode) -> impl Future<Output = ()> + '_ {
        let all = async move || self.listeners.iter().all(|one| one.stats.mode() == mode);
        eventually(PATIENCE, "the mode of all listeners", all)
    }

    /// Waits until so many keys are enrolled, of all partitions.
    #[track_caller]
    pub(crate) fn until_enrolled(&self, keys: i64) -> impl Future<Output = ()> + '_ {
        eventually(PATIENCE, "keys to be enrolled", async move || self.enrolled().await >= keys)
    }

    pub(crate) async fn enrolled(&self) -> i64 {
        let mut count = 0;
        for partition in 0..4 {
            let key = format!("keylapse:{{orders/{partition}}}:tracked");
            let Ok(owner) = self.cluster.owner_of_key(&key).await else { continue };
            if let Ok(RedisReply::Int(more)) = owner.command(["HLEN", &key]).await {
                count += more;
            }
        }
        count
    }

    /// What the only listener has counted.
    pub(crate) fn counted(&self) -> AttachedStats {
        self.listeners[0].stats.attached("orders").expect("it is attached")
    }

    /// Has a slot moved to another node.
    pub(crate) async fn move_slot_of(&self, key: &str) {
        let slot = self.cluster.slot_of(key).await.unwrap();
        let owner = self.cluster.owner_of_slot(slot).await.unwrap();
        let primaries = self.cluster.primaries().await.unwrap();
        let to = primaries.iter().find(|node| **node != owner).unwrap();
        self.cluster.move_slot(slot, to).await.unwrap();
    }

    /// Sends a command to the owner of a key.
    pub(crate) async fn at_owner(&self, key: &str, command: &[&str]) -> RedisReply {
        self.cluster.owner_of_key(key).await.unwrap().command(command).await.unwrap()
    }

    /// And nothing was refused: neither for want of a right, nor for keys of two slots.
    pub(crate) async fn end(self) -> Notes {
        assert_nothing_refused(&self.cluster.nodes()).await;
        for listener in self.listeners {
            listener.stop().await.unwrap();
        }
        self.notes
    }
}

/// The name of an order's key.
pub(crate) fn order(id: impl std::fmt::Display) -> String {
    format!("app:order:{id}")
}

/// A program that writes orders, and tries again until a server has taken them.
pub(crate) struct Writer {
    program: Plain,
    /// How many have to have each write.
    replicas: usize,
}

impl Writer {
    pub(crate) fn new(cluster: &LocalCluster) -> Self {
        Self::among(cluster.nodes().iter().map(LocalNode::url).collect(), 0)
    }

    /// To whichever of these takes it, and has so many replicas that have it, too.
    pub(crate) fn among(urls: Vec<String>, replicas: usize) -> Self {
        Self { program: Plain::new(urls), replicas }
    }

    /// Another that knows as much.
    pub(crate) fn another(&self) -> Self {
        Self { program: self.program.another(), ..*self }
    }

    /// A write counts once so many replicas have it, too.
    pub(crate) fn durable(cluster: &LocalCluster, replicas: usize) -> Self {
        Self { replicas, ..Self::new(cluster) }
    }

    /// Writes so many orders, one every so often, each of which lives for about so long. Those that may have been written
    /// more than once.
    pub(crate) fn stream(self, count: usize, every: Duration, ms: u64) -> JoinHandle<HashSet<String>> {
        self.stream_of(0..count, every, ms)
    }

    /// The same of these numbers.
    pub(crate) fn stream_of(
        mut self,
        numbers: impl Iterator<Item = usize> + Send + 'static,
        every: Duration,
        ms: u64,
    ) -> JoinHandle<HashSet<String>> {
        tokio::spawn(async move {
            let (mut tick, mut again) =
                (tokio::time::interval(every.max(Duration::from_micros(1))), HashSet::new());
            for number in numbers {
                tick.tick().await;
                let (key, ms) = (order(number), ms + number as u64 * 131 % ms);
                if !self.write(&key, ms).await {
                    again.insert(key);
                }
            }
            again
        })
    }

    /// Writes these, one after the other.
    pub(crate) async fn write_all(&mut self, keys: impl IntoIterator<Item = String>, ms: u64) {
        for key in keys {
            self.write(&key, ms).await;
        }
    }

    /// Writes a key that lives for so long; its value is its name. Tries again until a server has taken it; whether it was
    /// taken at once, and so has one life.
    pub(crate) async fn write(&mut self, key: &str, ms: u64) -> bool {
        let until = tokio::time::Instant::now() + PATIENCE;
        let mut at_once = true;
        while let Err(error) = self.try_write(key, ms).await {
            assert!(tokio::time::Instant::now() < until, "{key} is not written: {error}");
            at_once &= error.code() == Some("READONLY");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        at_once
    }

    async fn try_write(&mut self, key: &str, ms: u64) -> redis::RedisResult<()> {
        let set = redis::cmd("SET").arg(key).arg(key).arg("PX").arg(ms).to_owned();
        let (_, url) = self.program.ask(key, &set).await?;
        if self.replicas == 0 {
            return Ok(());
        }
        let wait = redis::cmd("WAIT").arg(self.replicas).arg(500).to_owned();
        let reached: usize = redis::from_redis_value(self.program.ask_at(&url, &wait).await?)?;
        let few = || std::io::Error::other("it has not reached a replica").into();
        if reached >= self.replicas { Ok(()) } else { Err(few()) }
    }
}
