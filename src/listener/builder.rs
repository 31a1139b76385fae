//! Builds a listener, and refuses what could never work.

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
    LastError, Listening, Nodes, Partition, Permits, Refusals, RunningTopic, Runtime, Stall, StreamState,
    Waiting,
};
use crate::stats::{AttachCounters, ListenerCounters, Meter, TopicCounters};
use crate::time::MAX_DELAY;
use crate::topic::{Topic, TopicConfig};
use crate::trace::Extract;

/// Collects topics and limits. See [`Listener::builder`].
///
/// `S` says whether its handlers have a state: `()` until [`state`](Self::state), then a
/// [`State`](crate::handler::State).
#[must_use = "nothing listens until it is built and run"]
pub struct ListenerBuilder<S = ()> {
    state: S,
    pub(super) settings: Settings,
}

/// All that does not depend on the state of the handlers.
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
    /// What handlers that are added from here on may take as their second argument: they are
    /// `async fn(Lapse<T>, S)`, or as before `async fn(Lapse<T>)`.
    ///
    /// Each attempt gets a clone: put an [`Arc`] around what is large or shared. A handler is checked against
    /// the state where it is added, so that none can be without.
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

    /// Runs this handler for the lapses of this topic.
    pub fn on<T: Send + 'static, K>(mut self, topic: Topic<T>, handler: impl IntoHandler<T, S, K>) -> Self {
        let handler = handler.into_handler(&self.state);
        // Of an attached topic, this would be a managed one of the same name; Redis refuses one of the two.
        let config = TopicConfig { attach: None, ..topic.config };
        self.settings.topics.push((config, erase(topic.codec.decode, handler)));
        self
    }

    /// Runs this handler for keys of this topic that other programs write, whenever one has expired. See
    /// docs/attach.md for what can be relied on, and [`Attached`] for what can be chosen.
    ///
    /// The handler gets an [`Expired<T>`](Expired), which has the key's value where the topic keeps it.
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

    /// Puts something around each handler so far, by the name of its topic.
    pub(crate) fn wrap(mut self, wrap: impl Fn(&str, AnyHandler) -> AnyHandler) -> Self {
        for (config, handler) in &mut self.settings.topics {
            *handler = wrap(&config.name, handler.clone());
        }
        self
    }

    /// How many attempts run at a time, over all topics. Each topic keeps one
    /// of these to itself while it runs nothing: with as many topics as attempts, each runs
    /// one at a time, and [`build`](Self::build) warns of it. Default: 1,000.
    pub fn concurrency(mut self, attempts: usize) -> Self {
        self.settings.concurrency = attempts;
        self
    }

    /// Gives a free place to the topic with the highest [priority](Topic::priority) that has due work, and to a lower one
    /// only if none has: **topics of lower priority may starve**. By default each has its part.
    ///
    /// The place that each topic keeps for itself while it has nothing to do stays, so that the first timer of a low
    /// topic starts at once even then. The next have to wait. Topics of the same priority take turns. Attempts that
    /// run are never interrupted. Where all topics have the same priority this changes nothing, and
    /// [`build`](Self::build) says so in the log.
    pub fn strict_priorities(mut self) -> Self {
        self.settings.strict = true;
        self
    }

    /// How long running attempts may go on after a shut-down was asked for. Those that have not ended then are
    /// dropped at their next `await`, and handed back. Default: 10 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace.min(MAX_DELAY); // what is added to a moment must not overflow it
        self
    }

    /// The runtime on which handlers run, in place of that on which [`run_until`](Listener::run_until) is awaited.
    ///
    /// The listener itself runs on a thread of its own: it renews leases, claims and settles whatever handlers
    /// do. One that blocks a thread of its runtime takes its own place and that thread; see `docs/handlers.md`.
    ///
    /// Keep the runtime until [`run_until`](Listener::run_until) has returned. When it is shut down before, the listener
    /// stops with [`ErrorKind::Internal`](crate::ErrorKind::Internal): what was running there runs again when its lease
    /// ends, and the rest is handed back.
    pub fn handlers_on(mut self, runtime: Handle) -> Self {
        self.settings.handlers = Some(runtime);
        self
    }

    /// Adds `E` and `x` to the server's `notify-keyspace-events` at the start, if
    /// they are missing. Without this the flags are never changed: they are the
    /// operator's, and timers fire all the same.
    pub fn manage_notifications(mut self) -> Self {
        self.settings.manage_notifications = true;
        self
    }

    /// Sends few requests while nothing is due: at most one in two seconds to each primary, for a topic of one partition.
    /// It is for services that are paid by the request. Else there are two to three in each second. Default: off.
    ///
    /// Timers fire in time: a listener that knows its next deadline needs no request until then, and the
    /// server tells it of new timers. Some faults are noticed later, as this proves every 20 s, and not every second,
    /// that the server still tells it:
    ///
    /// - A subscription that died without a sign is noticed within 21 s, in place of 1.5 s. A timer that was armed
    ///   meanwhile, and is due before all that the listener knows of, starts so much later.
    /// - Where the server tells of no new timers, as there is no pub/sub, one starts up to 15 s late, in place of
    ///   one.
    /// - Records that an index has lost are found within hours, by one look in 30 s.
    ///
    /// Each further partition costs one request in 20 s. Attached topics need the proof every second, so that a listener
    /// that has any cannot be built so.
    pub fn save_requests(mut self) -> Self {
        self.settings.saves_requests = true;
        self
    }

    /// Has this function called with the span of each attempt whose timer was armed with a trace context, before the
    /// handler starts, and with that context: a W3C `traceparent`. So the program's tracer can continue the trace.
    /// docs/operations.md shows it for OpenTelemetry; [`Schedule::trace`](crate::Schedule::trace) is the other end.
    pub fn trace(mut self, continue_trace: impl Fn(&Span, &str) + Send + Sync + 'static) -> Self {
        self.settings.extract = Some(Extract(Arc::new(continue_trace)));
        self
    }

    /// The listener. Nothing is connected yet.
    ///
    /// # Errors
    /// When two topics share a name or can claim the same key (the message
    /// names both patterns), a setting can never work, there is no topic, or
    /// the URL cannot be read.
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
                "topic {} is attached, and its listener cannot save requests: give attached topics a listener of their own",
                config.name
            );
            return Err(Error::invalid(message));
        }
        warn_of_few_permits(settings.concurrency, &settings.topics);
        warn_of_equal_priorities(settings.strict, &settings.topics);
        let client = Client { saves_requests: settings.saves_requests, ..settings.client?.apart() };
        client.check()?;
        client.store.topology().report();
        let router = route(&settings.topics, &client.namespace)?;
        let limits: Vec<_> =
            settings.topics.iter().map(|(config, _)| (config.concurrency, config.priority)).collect();
        let (permits, outage) =
            (Permits::new(settings.concurrency, &limits, settings.strict), Arc::default());
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
                followed: OnceLock::new(),
                attached: AttachCounters::default(),
                refusals: Refusals::default(),
                scanning: AtomicBool::default(),
            });
            let partition = |at| Arc::new(Partition::new(at, topic.clone(), &client, &permits, &outage));
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
            waiting: Waiting::default(),
            permits,
            listening: Listening::default(),
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

/// Each topic that runs nothing keeps one permit: what is left may be one for each.
fn warn_of_few_permits(concurrency: usize, topics: &[(TopicConfig, AnyHandler)]) {
    let count = topics.len();
    if count > 1 && concurrency <= count && topics.iter().any(|(config, _)| config.concurrency > 1) {
        warn!(
            concurrency,
            topics = count,
            "each topic runs one attempt at a time, as each of the others keeps one of the listener's: give \
             ListenerBuilder::concurrency one for each topic, and besides as many as one topic is to run at a time"
        );
    }
}

fn warn_of_equal_priorities(strict: bool, topics: &[(TopicConfig, AnyHandler)]) {
    let mut priorities = topics.iter().map(|(config, _)| config.priority);
    let first = priorities.next();
    if strict && priorities.all(|priority| Some(priority) == first) {
        warn!(
            topics = topics.len(),
            "strict priorities change nothing: no topic has another priority than the rest"
        );
    }
}

fn route(topics: &[(TopicConfig, AnyHandler)], namespace: &str) -> Result<Router<usize>> {
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
