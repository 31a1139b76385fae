//! A server, a topic and a listener whose handler counts: what tests of trouble
//! need.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylapse::handler::Handler;
use keylapse::stats::TopicStats;
use keylapse::{Client, Done, Failure, Lapse, Listener, ListenerBuilder, Schedule, Topic};
use keylapse_support::{Server, eventually};
use keylapse_wire::names::PartitionNames;
use redis::Value;

use crate::server::support::{PATIENCE, Running, show_log};

/// How often each key was handled.
#[derive(Clone, Default)]
pub(crate) struct Tally(Arc<Mutex<BTreeMap<Vec<u8>, u32>>>);

impl Tally {
    /// A handler that counts and succeeds.
    pub(crate) fn handler<T: Send + 'static>(&self) -> impl Handler<T> + use<T> {
        self.handler_that_fails(0)
    }

    /// A handler that counts, fails so many attempts of each timer, and succeeds at the next.
    pub(crate) fn handler_that_fails<T: Send + 'static>(&self, attempts: u32) -> impl Handler<T> + use<T> {
        let tally = self.clone();
        move |lapse: Lapse<T>| {
            tally.count(lapse.key());
            let fails = lapse.attempt() <= attempts;
            std::future::ready(if fails { Err(Failure::retry("as planned")) } else { Ok(Done) })
        }
    }

    /// Counts a run.
    pub(crate) fn count(&self, key: &[u8]) {
        *self.0.lock().unwrap().entry(key.to_vec()).or_default() += 1;
    }

    pub(crate) fn runs_of(&self, key: impl AsRef<[u8]>) -> u32 {
        self.0.lock().unwrap().get(key.as_ref()).copied().unwrap_or(0)
    }

    /// Waits until this many keys have been handled.
    #[track_caller]
    pub(crate) fn until(&self, keys: usize) -> impl Future<Output = ()> + '_ {
        eventually(PATIENCE, "the handlers to run", async move || self.0.lock().unwrap().len() >= keys)
    }

    /// That many keys, and each once.
    #[track_caller]
    pub(crate) fn assert_each_once(&self, keys: usize) {
        self.assert_each(keys, 1);
    }

    /// That many keys, and each so often.
    #[track_caller]
    pub(crate) fn assert_each(&self, keys: usize, times: u32) {
        let runs = self.0.lock().unwrap();
        assert_eq!(runs.len(), keys, "keys handled");
        let others: Vec<_> = runs.iter().filter(|(_, runs)| **runs != times).collect();
        assert!(others.is_empty(), "not handled {times} times: {others:?}");
    }
}

/// A topic on a server, with a producer and a listener.
pub(crate) struct Scene {
    pub(crate) server: Server,
    pub(crate) schedule: Schedule,
    pub(crate) topic: Topic<String>,
    pub(crate) tally: Tally,
    pub(crate) running: Running,
}

/// The topic of a [`Scene`].
pub(crate) fn orders() -> Topic<String> {
    Topic::named("orders", "app:order:{id}").unwrap()
}

impl Scene {
    pub(crate) async fn new() -> Self {
        Self::of(orders()).await
    }

    pub(crate) async fn of(topic: Topic<String>) -> Self {
        Self::on(Server::start().await, topic).await
    }

    pub(crate) async fn on(server: Server, topic: Topic<String>) -> Self {
        Self::with(server, topic, |builder| builder).await
    }

    /// With a listener that differs in something.
    pub(crate) async fn with(
        server: Server,
        topic: Topic<String>,
        change: impl FnOnce(ListenerBuilder) -> ListenerBuilder,
    ) -> Self {
        let client = Client::new(&server.app_url()).expect("a client");
        Self::at(server, topic, client, change).await
    }

    /// With a listener that has this client.
    pub(crate) async fn at(
        server: Server,
        topic: Topic<String>,
        client: Client,
        change: impl FnOnce(ListenerBuilder) -> ListenerBuilder,
    ) -> Self {
        show_log();
        let schedule = Schedule::connect(&server.app_url()).await.expect("a schedule");
        let tally = Tally::default();
        let builder = Listener::builder(client).on(topic.clone(), tally.handler());
        Self { server, schedule, topic, tally, running: Running::start(change(builder)) }
    }

    /// Arms a timer that counts.
    pub(crate) async fn arm(&self, id: impl AsRef<[u8]>, delay: Duration) {
        let armed = self.schedule.arm(&self.topic, [id], delay, &String::new()).await;
        assert!(armed.expect("it is armed").is_armed());
    }

    /// Arms one timer for now, and waits for it: the topic is well.
    pub(crate) async fn proves_well(&self, id: &str) {
        self.arm(id, Duration::ZERO).await;
        let key = self.topic.pattern().build([id]).unwrap();
        eventually(PATIENCE, "a new timer to run", async || self.tally.runs_of(&key) == 1).await;
    }

    /// Waits until this holds of what was counted of the topic.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, holds: impl Fn(TopicStats) -> bool) -> impl Future<Output = ()> {
        eventually(PATIENCE, what, async move || holds(self.stats()))
    }

    /// The names of the topic's only partition.
    pub(crate) fn names(&self) -> PartitionNames {
        names(&self.topic)
    }

    pub(crate) fn stats(&self) -> TopicStats {
        self.running.stats.topic(self.topic.name()).unwrap()
    }

    pub(crate) async fn stop(self) {
        self.running.stop().await.unwrap();
    }
}

/// A producer of orders and a listener for them at a URL.
pub(crate) async fn orders_at(url: &str) -> (Schedule, Tally, Running) {
    show_log();
    let schedule = Schedule::connect(url).await.unwrap();
    let tally = Tally::default();
    let running = Running::start(Listener::builder(url).on(orders(), tally.handler()));
    (schedule, tally, running)
}

/// The names of a topic's only partition.
pub(crate) fn names<T>(topic: &Topic<T>) -> PartitionNames {
    PartitionNames::new("keylapse", topic.name(), 0, 1, false)
}

/// The bytes of an answer; none for nil.
pub(crate) fn bytes(answer: Value) -> Option<Vec<u8>> {
    redis::from_redis_value(answer).unwrap()
}
