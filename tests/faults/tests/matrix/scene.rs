//! A server, a topic and listeners of this process whose handlers count.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use keylapse::handler::Handler;
use keylapse::stats::{Stats, TopicStats};
use keylapse::{Done, Failure, Lapse, Listener, ListenerBuilder, NewArm, Schedule, Topic};
use keylapse_support::{Server, eventually};
use keylapse_wire::names::PartitionNames;
use keylapse_wire::scripts;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(45);

/// The topic of most rows.
pub(crate) fn topic(lease: Duration) -> Topic<u32> {
    Topic::named("row", "app:row:{id}").expect("a topic").lease(lease)
}

/// The names of its only partition.
pub(crate) fn names() -> PartitionNames {
    PartitionNames::new("keylapse", "row", 0, 1, false)
}

/// What each key's handler was called with, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally(Arc<Mutex<BTreeMap<String, Vec<Run>>>>);

/// One start of a handler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) attempt: u32,
    pub(crate) late: Duration,
}

impl Tally {
    /// A handler that counts and succeeds.
    pub(crate) fn handler(&self) -> impl Handler<u32> + use<> {
        let tally = self.clone();
        move |lapse: Lapse<u32>| {
            tally.note(&lapse);
            ready(Ok::<_, Failure>(Done))
        }
    }

    pub(crate) fn note(&self, lapse: &Lapse<u32>) {
        let id = lapse.capture("id").unwrap_or("?").to_owned();
        let run = Run { attempt: lapse.attempt(), late: lapse.lateness() };
        self.runs().entry(id).or_default().push(run);
    }

    pub(crate) fn runs(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Run>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn runs_of(&self, id: &str) -> usize {
        self.runs().get(id).map_or(0, Vec::len)
    }

    /// Waits until this many keys have been handled.
    #[track_caller]
    pub(crate) fn until(&self, keys: usize) -> impl Future<Output = ()> + '_ {
        eventually(PATIENCE, "the handlers to run", async move || self.runs().len() >= keys)
    }

    /// That many keys, and each once, in its first attempt.
    #[track_caller]
    pub(crate) fn assert_each_once(&self, keys: usize) {
        let runs = self.runs();
        assert_eq!(runs.len(), keys, "keys handled");
        let others: Vec<_> =
            runs.iter().filter(|(_, runs)| runs.len() != 1 || runs[0].attempt != 1).collect();
        assert!(others.is_empty(), "not once: {others:?}");
    }

    /// The median and the longest lateness.
    pub(crate) fn lateness(&self) -> [Duration; 2] {
        let mut late: Vec<_> = self.runs().values().flatten().map(|run| run.late).collect();
        late.sort_unstable();
        [late[late.len() / 2], late[late.len() - 1]]
    }
}

/// A listener that runs in the background until it is stopped.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<keylapse::Result<()>>,
    stats: Stats,
}

impl Running {
    pub(crate) fn start(builder: ListenerBuilder) -> Self {
        Self::start_on(&tokio::runtime::Handle::current(), builder)
    }

    /// On a runtime of its own.
    pub(crate) fn start_on(runtime: &tokio::runtime::Handle, builder: ListenerBuilder) -> Self {
        let listener = builder.build().expect("a listener");
        let stats = listener.stats();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = runtime.spawn(async move { listener.run_until(stopped).await });
        Self { stop, task, stats }
    }

    pub(crate) fn stats(&self) -> TopicStats {
        self.stats.total()
    }

    /// Waits until its subscription is known to hear expired keys.
    pub(crate) async fn anchored(&self) {
        eventually(PATIENCE, "events to flow", async || self.stats.listener().anchored > 0).await;
    }

    /// Stops it once so many keys have been handled, each once.
    pub(crate) async fn done(self, tally: &Tally, keys: usize) -> TopicStats {
        tally.until(keys).await;
        let stats = self.stop().await;
        tally.assert_each_once(keys);
        stats
    }

    pub(crate) async fn stop(self) -> TopicStats {
        drop(self.stop);
        let ended = tokio::time::timeout(PATIENCE, self.task).await.expect("the listener stops");
        ended.expect("without a panic").expect("in order");
        self.stats.total()
    }
}

/// A server whose scripts are loaded, so that a lost reply is never a NOSCRIPT, and a producer.
pub(crate) async fn server_and_schedule() -> (Server, Schedule) {
    let server = Server::start().await;
    load_scripts(&server).await;
    let schedule = Schedule::connect(&server.app_url()).await.expect("a schedule");
    (server, schedule)
}

pub(crate) async fn load_scripts(server: &Server) {
    for script in scripts::all() {
        server.cmd(&["SCRIPT", "LOAD", &script.text]).await;
    }
}

pub(crate) fn listener(server: &Server) -> ListenerBuilder {
    Listener::builder(server.app_url())
}

/// A topic, and a listener for it that hears and counts.
pub(crate) async fn counting(builder: ListenerBuilder, lease: Duration) -> (Topic<u32>, Tally, Running) {
    let (topic, tally) = (topic(lease), Tally::default());
    let running = Running::start(builder.on(topic.clone(), tally.handler()));
    running.anchored().await;
    (topic, tally, running)
}

/// How many timers there are.
pub(crate) async fn timers_left(server: &Server) -> i64 {
    redis::from_redis_value(server.cmd(&["HLEN", names().key("timers")]).await).expect("a number")
}

/// Arms timers named by their numbers.
pub(crate) async fn arm_all(
    schedule: &Schedule,
    topic: &Topic<u32>,
    numbers: std::ops::Range<u32>,
    delay: impl Fn(u32) -> Duration,
) {
    let arms: Vec<_> = numbers.map(|n| NewArm::new([n.to_string()], delay(n), n)).collect();
    let armed = schedule.arm_many(topic, arms).await.expect("an answer");
    assert!(armed.iter().all(|armed| armed.as_ref().is_ok_and(keylapse::ArmResult::is_armed)));
}

pub(crate) async fn arm(schedule: &Schedule, topic: &Topic<u32>, id: &str, delay: Duration) {
    assert!(schedule.arm(topic, [id], delay, &0).await.expect("an answer").is_armed());
}

/// Matches the runs of a script on a topic's partitions.
pub(crate) fn runs_of(script: &scripts::Script, topic: &str) -> impl Fn(&[bytes::Bytes]) -> bool + use<> {
    let (sha, tag) = (script.sha.clone(), format!("{{{topic}/"));
    move |words| match words {
        [_, hash, _, meta, ..] => *hash == sha.as_bytes() && String::from_utf8_lossy(meta).contains(&tag),
        _ => false,
    }
}
