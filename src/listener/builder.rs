//! Builds a listener, and refuses what could never work.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::runtime::partition::Shared;
use crate::runtime::Runtime;
use crate::runtime::partition::Partition;
use crate::listener::Listener;
use crate::runtime::topic::RunningTopic;
use crate::attached::policy::Attached;
use crate::attached::value::Expired;
use crate::runtime::permits::Permits;
use crate::runtime::quarantine::Quarantine;
use crate::error::{Error, ErrorKind, Result};
use crate::handler::{AnyHandler, Handler, erase};
use crate::pattern::router::Router;
use crate::runtime::outbox::LINGER;
use crate::stats::ListenerCounters;
use crate::wire::names::{DEFAULT_NAMESPACE, check_name};
use crate::wire::store::Store;
use crate::wire::Store;
use crate::time::MAX_DELAY;
use crate::topic::{TopicConfig, Topic};

/// Collects topics and limits. See [`Listener::builder`].
pub struct ListenerBuilder {
    at: At,
    namespace: String,
    topics: Vec<(TopicConfig, Arc<dyn AnyHandler>)>,
    concurrency: usize,
    grace: Duration,
    answer_within: Duration,
    manage_notifications: bool,
}

enum At {
    Url(String),
    Store(Arc<dyn Store>),
}

impl ListenerBuilder {
    pub(super) fn at_url(url: String) -> Self {
        Self::new(At::Url(url))
    }

    pub(super) fn on_store(store: Arc<dyn Store>) -> Self {
        Self::new(At::Store(store))
    }

    fn new(at: At) -> Self {
        Self {
            at,
            namespace: DEFAULT_NAMESPACE.to_owned(),
            topics: Vec::new(),
            concurrency: 1000,
            grace: Duration::from_secs(10),
            answer_within: crate::wire::store::DEFAULT_ANSWER_WITHIN,
            manage_notifications: false,
        }
    }

    /// Runs this handler for the lapses of this topic.
    #[must_use]
    pub fn on<T: Send + 'static>(mut self, topic: Topic<T>, handler: impl Handler<T>) -> Self {
        // Of an attached topic, this would be a managed one of the same name; Redis refuses one of the two.
        let config = TopicConfig { attach: None, ..topic.config };
        self.topics.push((config, erase(topic.codec.decode, handler)));
        self
    }

    /// Runs this handler for keys of this topic that other programs write, whenever one has expired. See
    /// docs/attach.md for what can be relied on, and [`Attached`] for what can be chosen.
    ///
    /// The handler gets an [`Expired<T>`](Expired), which has the key's value where the topic keeps it.
    #[must_use]
    pub fn attach<T: Send + 'static>(
        mut self,
        topic: impl Into<Attached<T>>,
        handler: impl Handler<Expired<T>>,
    ) -> Self {
        let topic = topic.into().into_topic();
        let codec = topic.codec;
        let decode = move |payload| Expired::decode(payload, codec);
        self.topics.push((topic.config, erase(decode, handler)));
        self
    }

    /// Puts something around each handler so far, by the name of its topic.
    #[cfg(feature = "testing")]
    pub(crate) fn wrap(mut self, wrap: impl Fn(&str, Arc<dyn AnyHandler>) -> Arc<dyn AnyHandler>) -> Self {
        for (config, handler) in &mut self.topics {
            *handler = wrap(&config.name, handler.clone());
        }
        self
    }

    /// How many attempts run at a time, over all topics. Each topic keeps one
    /// place of these to itself while it runs nothing. Default: 1,000.
    #[must_use]
    pub fn concurrency(mut self, attempts: usize) -> Self {
        self.concurrency = attempts;
        self
    }

    /// How long running attempts may go on after a shut-down was asked for.
    /// Default: 10 s.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace.min(MAX_DELAY); // what is added to a moment must not overflow it
        self
    }

    /// The prefix of all names in Redis. Default: `keylapse`.
    #[must_use]
    pub fn namespace(mut self, prefix: impl Into<String>) -> Self {
        self.namespace = prefix.into();
        self
    }

    /// How long the server may take to answer one call. Default: 5 s.
    #[must_use]
    pub fn answer_within(mut self, limit: Duration) -> Self {
        self.answer_within = limit;
        self
    }

    /// Adds `E` and `x` to the server's `notify-keyspace-events` at the start, if
    /// they are missing. Without this the flags are never changed: they are the
    /// operator's, and timers fire all the same.
    #[must_use]
    pub fn manage_notifications(mut self) -> Self {
        self.manage_notifications = true;
        self
    }

    /// The listener. Nothing is connected yet.
    ///
    /// # Errors
    /// When two topics share a name or can claim the same key (the message
    /// names both patterns), a setting can never work, there is no topic, or
    /// the URL cannot be read.
    pub fn build(self) -> Result<Listener> {
        if self.topics.is_empty() {
            return Err(Error::invalid(
                "a listener needs at least one topic: call .on(topic, handler) or .attach(topic, handler)",
            ));
        }
        if self.concurrency == 0 {
            return Err(Error::invalid("a listener's concurrency must be at least 1"));
        }
        check_name("the namespace", &self.namespace)?;
        let router = route(&self.topics, &self.namespace)?;
        let store: Arc<dyn Store> = match self.at {
            At::Store(store) => store,
            At::Url(url) => Arc::new(Store::with_options(&url, self.answer_within)?),
        };
        let foreign = store.foreign();
        if let Some((config, _)) =
            self.topics.iter().find(|(config, _)| config.attach.is_some() && foreign.is_none())
        {
            let message = "keys of other programs are on a server, and this store has none";
            return Err(Error::invalid(format!("attached topic {}: {message}", config.name)));
        }
        let limits = self.topics.iter().map(|(config, _)| config.concurrency);
        let permits = Arc::new(Permits::new(self.concurrency, limits));
        let topics: Vec<_> = (self.topics.into_iter().enumerate())
            .map(|(index, (config, handler))| Arc::new(RunningTopic::new(index, config, handler)))
            .collect();
        let quarantine =
            Arc::new(Quarantine::new(topics.iter().map(|topic| topic.config.partitions as usize).sum()));
        // Virtual time stands still while there is work to do, so company comes anyway.
        let linger = if store.virtual_time() { Duration::ZERO } else { LINGER };
        let shared = Shared {
            permits,
            quarantine: quarantine.clone(),
            outage: Arc::default(),
            foreign: foreign.clone(),
            linger,
        };
        let partitions = open_partitions(&topics, &self.namespace, &shared);
        let runtime = Runtime {
            store,
            topics,
            partitions,
            router,
            quarantine,
            stats: ListenerCounters::default(),
            foreign,
            stream_state: Arc::default(),
            manage_notifications: self.manage_notifications,
        };
        Ok(Listener { runtime: Arc::new(runtime), grace: self.grace })
    }
}

impl fmt::Debug for ListenerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let topics: Vec<_> = self.topics.iter().map(|(config, _)| &config.name).collect();
        f.debug_struct("ListenerBuilder").field("topics", &topics).finish_non_exhaustive()
    }
}

fn route(topics: &[(TopicConfig, Arc<dyn AnyHandler>)], namespace: &str) -> Result<Router<usize>> {
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

fn open_partitions(topics: &[Arc<RunningTopic>], namespace: &str, shared: &Shared) -> Vec<Arc<Partition>> {
    let mut partitions = Vec::new();
    for topic in topics {
        topic.first_partition.set(partitions.len()).unwrap_or_default();
        for at in topic.config.all_partitions(namespace) {
            let partition = Partition::new(partitions.len(), at, topic.clone(), shared);
            partitions.push(Arc::new(partition));
        }
    }
    partitions
}
