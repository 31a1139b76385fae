//! Builds a listener, and rejects settings that cannot work.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tracing::Span;
use tracing::dispatcher::{Dispatch, get_default};

use crate::attached::{Attached, Expired};
use crate::client::Client;
use crate::error::{Error, ErrorKind, Result};
use crate::handler::{AnyHandler, IntoHandler, State, erase};
use crate::id::SlotId;
use crate::listener::Listener;
use crate::log::warn;
use crate::pattern::Router;
use crate::runtime::{
    BacklogGauges, ConcurrencyLimiter, LastError, ListenerReadiness, Nodes, Partition, Refusals,
    RunningTopic, Runtime, Stall, StreamState,
};
use crate::stats::{AttachCounters, ListenerCounters, Meter, TopicCounters};
use crate::time::MAX_DELAY;
use crate::topic::{Topic, TopicConfig};
use crate::trace::Extract;

/// Collects the topics and settings of a listener. See [`Listener::builder`].
///
/// `S` is the state of its handlers: `()` until [`state`](Self::state) is called, then a
/// [`State`](crate::handler::State).
///
/// ```
/// use std::time::Duration;
/// use keylapse::{Done, Lapse, Listener, Topic};
///
/// # async fn close(_: Lapse<u64>) -> std::io::Result<Done> { Ok(Done) }
/// # async fn notify(_: Lapse<String>) -> std::io::Result<Done> { Ok(Done) }
/// let listener = Listener::builder("redis://127.0.0.1/")
///     .on(Topic::<u64>::new("order:unpaid:{id}")?, close)
///     .on(Topic::<String>::new("payment:notice:{id}")?, notify)
///     .concurrency(200)
///     .grace(Duration::from_secs(30))
///     .build()?;
/// assert!(!listener.health().is_ready()); // it connects in `run_until`
/// # Ok::<(), keylapse::Error>(())
/// ```
#[must_use = "a builder does nothing until its listener is built and run"]
pub struct ListenerBuilder<S = ()> {
    state: S,
    pub(super) settings: Settings,
}

/// The settings that do not depend on the state of handlers.
pub(super) struct Settings {
    client: Result<Client>,
    topics: Vec<(TopicConfig, AnyHandler)>,
    pub(super) concurrency: usize,
    strict: bool,
    pub(super) grace: Duration,
    manage_notifications: bool,
    pub(super) saves_requests: bool,
    handlers: Option<Handle>,
    extract: Option<Extract>,
}

impl ListenerBuilder {
    pub(super) fn new(client: Result<Client>) -> Self {
        let settings = Settings {
            client,
            topics: Vec::new(),
            concurrency: 1000,
            strict: false,
            grace: Duration::from_secs(10),
            manage_notifications: false,
            saves_requests: false,
            handlers: None,
            extract: None,
        };
        Self { state: (), settings }
    }
}

impl<S> ListenerBuilder<S> {
    /// Sets the state that handlers may take as their second argument. Handlers added after this call are
    /// `async fn(Lapse<T>, S)` or `async fn(Lapse<T>)`.
    ///
    /// Each attempt gets a clone, so put an [`Arc`] around large or shared data. The compiler checks each handler
    /// against the state where the handler is added.
    ///
    /// ```
    /// use keylapse::{Done, Lapse, Listener, Topic};
    ///
    /// #[derive(Clone)]
    /// struct App { shop: &'static str }
    ///
    /// async fn close(order: Lapse<u64>, app: App) -> std::io::Result<Done> {
    ///     println!("{}: {} cents were not paid", app.shop, order.payload());
    ///     Ok(Done)
    /// }
    ///
    /// async fn forget(cart: Lapse<String>) -> Result<(), String> {
    ///     println!("{} has left", cart.payload());
    ///     Ok(())
    /// }
    ///
    /// let listener = Listener::builder("redis://127.0.0.1/")
    ///     .state(App { shop: "books" })
    ///     .on(Topic::<u64>::new("order:unpaid:{id}")?, close)
    ///     .on(Topic::<String>::new("cart:{id}")?, forget)
    ///     .build()?;
    /// # Ok::<(), keylapse::Error>(())
    /// ```
    pub fn state<N: Clone + Send + Sync + 'static>(self, state: N) -> ListenerBuilder<State<N>> {
        ListenerBuilder { state: State(state), settings: self.settings }
    }

    /// Adds a topic, and the handler that runs for its lapses.
    pub fn on<T: Send + 'static, K>(mut self, topic: Topic<T>, handler: impl IntoHandler<T, S, K>) -> Self {
        let handler = handler.into_handler(&self.state);
        // `on` adds managed topics only. Redis refuses a managed and an attached topic of the same name.
        let config = TopicConfig { attach: None, ..topic.config };
        self.settings.topics.push((config, erase(topic.codec.decode, handler)));
        self
    }

    /// Adds a topic of keys that other programs write, and the handler that runs when such a key has expired.
    /// docs/attach.md lists the guarantees, and [`Attached`] the options.
    ///
    /// The handler gets an [`Expired<T>`](Expired), with the key's value if the topic keeps values.
    pub fn attach<T: Send + 'static, K>(
        mut self,
        topic: impl Into<Attached<T>>,
        handler: impl IntoHandler<Expired<T>, S, K>,
    ) -> Self {
        let handler = handler.into_handler(&self.state);
        let topic = topic.into().into_topic();
        let codec = topic.codec;
        let decode = move |payload| Expired::decode(payload, codec);
        self.settings.topics.push((topic.config, erase(decode, handler)));
        self
    }

    /// Wraps each handler added so far. `wrap` gets the name of its topic.
    pub(crate) fn wrap(mut self, wrap: impl Fn(&str, AnyHandler) -> AnyHandler) -> Self {
        for (config, handler) in &mut self.settings.topics {
            *handler = wrap(&config.name, handler.clone());
        }
        self
    }

    /// Limits how many attempts run at the same time, over all topics. Default: 1,000.
    ///
    /// Each idle topic reserves one of these slots. With as many topics as slots, each topic runs one attempt at a
    /// time, and [`build`](Self::build) logs a warning.
    pub fn concurrency(mut self, attempts: usize) -> Self {
        self.settings.concurrency = attempts;
        self
    }

    /// Gives each free slot to the topic with the highest [priority](Topic::priority) that has due timers. **Topics
    /// of lower priority may starve.** By default, each topic gets its share.
    ///
    /// An idle topic still reserves one slot, so its first timer starts immediately, and later ones wait. Topics of
    /// the same priority take turns. Running attempts are never interrupted. If all topics have the same priority,
    /// this changes nothing, and [`build`](Self::build) logs a warning.
    pub fn strict_priorities(mut self) -> Self {
        self.settings.strict = true;
        self
    }

    /// Limits how long running attempts may continue after a shutdown was requested. The rest are then dropped at
    /// their next `await`, and their timers are released. Default: 10 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace.min(MAX_DELAY); // longer times could overflow an `Instant`
        self
    }

    /// Runs handlers on this runtime instead of the one that awaits [`run_until`](Listener::run_until).
    ///
    /// The listener has its own thread, so blocking handlers do not delay leases, claims and settlements. A handler
    /// that blocks occupies its slot and a thread of the runtime; see `docs/handlers.md`.
    ///
    /// Keep the runtime until [`run_until`](Listener::run_until) has returned. If it shuts down earlier, the listener
    /// stops with [`ErrorKind::Internal`](crate::ErrorKind::Internal). Timers of running attempts run again when
    /// their leases end. The other claimed timers are released.
    pub fn handlers_on(mut self, runtime: Handle) -> Self {
        self.settings.handlers = Some(runtime);
        self
    }

    /// Adds the flags `E` and `x` to the server's `notify-keyspace-events` at the start, if they are missing. By
    /// default, the flags are left to the operator. Timers of managed topics fire without them.
    pub fn manage_notifications(mut self) -> Self {
        self.settings.manage_notifications = true;
        self
    }

    /// Sends fewer requests while nothing is due, for services that bill each request. A topic of one partition then
    /// costs at most one request in two seconds to each primary, instead of two to three per second. Default: off.
    ///
    /// Timers still fire on time: the listener remembers its next deadline, and the server announces new timers. The
    /// listener verifies the subscription every 20 s instead of every second, so it detects some faults later:
    ///
    /// - A subscription that fails without an error is detected within 21 s instead of 1.5 s. A timer that is armed
    ///   in this time, and is due before all others, starts late by up to this time.
    /// - Without pub/sub, the server announces no new timers. A new timer starts up to 15 s late instead of 1 s.
    /// - Records that an index has lost are found within hours, by one scan in 30 s.
    ///
    /// Each further partition costs one request in 20 s. Attached topics need a verification every second, so
    /// [`build`](Self::build) fails for a listener that has one.
    pub fn save_requests(mut self) -> Self {
        self.settings.saves_requests = true;
        self
    }

    /// Calls this function before each attempt whose timer was armed with a trace context. It gets the span of the
    /// attempt and the context, a W3C `traceparent`, so the program's tracer can continue the trace.
    /// docs/monitor.md shows it for OpenTelemetry. [`Schedule::trace`](crate::Schedule::trace) sets the context of
    /// a timer.
    pub fn trace(mut self, continue_trace: impl Fn(&Span, &str) + Send + Sync + 'static) -> Self {
        self.settings.extract = Some(Extract(Arc::new(continue_trace)));
        self
    }

    /// Returns the listener. It connects in [`run_until`](Listener::run_until).
    ///
    /// # Errors
    /// The builder has no topic, a setting cannot work, or the URL is invalid. Two topics have the same name, or
    /// patterns that can match the same key; the message names both patterns.
    pub fn build(self) -> Result<Listener> {
        let settings = self.settings;
        if settings.topics.is_empty() {
            return Err(Error::invalid(
                "a listener needs at least one topic: call .on(topic, handler) or .attach(topic, handler)",
            ));
        }
        if settings.concurrency == 0 {
            return Err(Error::invalid("a listener's concurrency must be at least 1"));
        }
        let attached = settings.topics.iter().find(|(config, _)| config.attach.is_some());
        if let Some((config, _)) = attached.filter(|_| settings.saves_requests) {
            let message = format!(
                "topic {} is attached, and its listener cannot save requests: give attached topics their own listener",
                config.name
            );
            return Err(Error::invalid(message));
        }
        warn_of_few_slots(settings.concurrency, &settings.topics);
        warn_of_equal_priorities(settings.strict, &settings.topics);
        let client = Client { saves_requests: settings.saves_requests, ..settings.client?.apart() };
        client.check()?;
        client.store.topology().report();
        let router = build_router(&settings.topics, &client.namespace)?;
        let limits: Vec<_> =
            settings.topics.iter().map(|(config, _)| (config.concurrency, config.priority)).collect();
        let (limiter, outage) =
            (ConcurrencyLimiter::new(settings.concurrency, &limits, settings.strict), Arc::default());
        let (mut topics, mut partitions) = (Vec::new(), Vec::new());
        for (index, (config, handler)) in settings.topics.into_iter().enumerate() {
            let names = config.all_partitions(&client.namespace);
            let stats = TopicCounters::default();
            let topic = Arc::new(RunningTopic {
                index,
                first_partition: partitions.len(),
                meter: Meter::new(&config.name, &stats),
                config,
                handler,
                stats,
                extract: settings.extract.clone(),
                last_error: LastError::default(),
                last_failure: LastError::default(),
                renumbered: Default::default(),
                lost_answers: Default::default(),
                policy_in_redis: OnceLock::new(),
                attached: AttachCounters::default(),
                refusals: Refusals::default(),
                tracks_written_keys: AtomicBool::default(),
            });
            let partition = |at| Arc::new(Partition::new(at, topic.clone(), &client, &limiter, &outage));
            partitions.extend(names.into_iter().map(partition));
            topics.push(topic);
        }
        let runtime = Runtime {
            id: SlotId::random().to_string(),
            client,
            topics,
            partitions,
            router,
            stats: ListenerCounters::default(),
            nodes: Nodes::default(),
            stream_state: StreamState::default(),
            backlog: BacklogGauges::default(),
            limiter,
            readiness: ListenerReadiness::default(),
            stall: Stall::default(),
        };
        Ok(Listener {
            runtime: Arc::new(runtime),
            grace: settings.grace,
            manage_notifications: settings.manage_notifications,
            handlers: settings.handlers,
            subscriber: get_default(Dispatch::clone),
        })
    }
}

impl<S> fmt::Debug for ListenerBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let topics: Vec<_> = self.settings.topics.iter().map(|(config, _)| &config.name).collect();
        f.debug_struct("ListenerBuilder").field("topics", &topics).finish_non_exhaustive()
    }
}

/// Warns if each topic can run only one attempt at a time, because each idle topic reserves one slot.
fn warn_of_few_slots(concurrency: usize, topics: &[(TopicConfig, AnyHandler)]) {
    let count = topics.len();
    if count > 1 && concurrency <= count && topics.iter().any(|(config, _)| config.concurrency > 1) {
        warn!(
            concurrency,
            topics = count,
            "each topic runs one attempt at a time, as each idle topic reserves one slot: set \
             ListenerBuilder::concurrency to the number of topics plus the attempts that one topic is to run at a time"
        );
    }
}

/// Warns if strict priorities have no effect.
fn warn_of_equal_priorities(strict: bool, topics: &[(TopicConfig, AnyHandler)]) {
    let mut priorities = topics.iter().map(|(config, _)| config.priority);
    let first = priorities.next();
    if strict && priorities.all(|priority| Some(priority) == first) {
        warn!(topics = topics.len(), "strict priorities change nothing: all topics have the same priority");
    }
}

/// Returns the router from keys to the indexes of topics. Rejects topics that share a name or may match the same key.
fn build_router(topics: &[(TopicConfig, AnyHandler)], namespace: &str) -> Result<Router<usize>> {
    let mut router = Router::new();
    let mut names = HashMap::new();
    for (index, (config, _)) in topics.iter().enumerate() {
        config.check(namespace)?;
        if let Some(other) = names.insert(config.name.as_str(), &config.pattern) {
            let message = format!(
                "patterns {other} and {} share the topic name {}; give one of them another with Topic::named",
                config.pattern, config.name
            );
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        router.insert(config.pattern.clone(), index)?;
    }
    Ok(router)
}
