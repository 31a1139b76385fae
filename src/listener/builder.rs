//! Builds a listener, and refuses what could never work.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::desk::Shared;
use super::{Core, Desk, Listener, TopicRun};
use crate::attach::{Attached, Expired};
use crate::claim::{Places, Suspects};
use crate::error::{Error, ErrorKind, Result};
use crate::handler::{AnyHandler, Handler, erase};
use crate::pattern::Router;
use crate::settle::LINGER;
use crate::stats::ListenerCounters;
use crate::store::keys::{DEFAULT_NAMESPACE, check_name};
use crate::store::{RedisStore, Store};
use crate::time::MAX_DELAY;
use crate::topic::{Shape, Topic};

/// Collects topics and limits. See [`Listener::builder`].
pub struct ListenerBuilder {
    at: At,
    pub(crate) namespace: String,
    topics: Vec<(Shape, Arc<dyn AnyHandler>)>,
    pub(crate) concurrency: usize,
    pub(crate) grace: Duration,
    pub(crate) answer_within: Duration,
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
            answer_within: crate::store::DEFAULT_ANSWER_WITHIN,
            manage_notifications: false,
        }
    }

    /// Runs this handler for the lapses of this topic.
    #[must_use]
    pub fn on<T: Send + 'static>(mut self, topic: Topic<T>, handler: impl Handler<T>) -> Self {
        // Of an attached topic, this would be a managed one of the same name; Redis refuses one of the two.
        let shape = Shape { attach: None, ..topic.shape };
        self.topics.push((shape, erase(topic.codec.decode, handler)));
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
        self.topics.push((topic.shape, erase(decode, handler)));
        self
    }

    /// Puts something around each handler so far, by the name of its topic.
    #[cfg(feature = "testing")]
    pub(crate) fn wrap(mut self, wrap: impl Fn(&str, Arc<dyn AnyHandler>) -> Arc<dyn AnyHandler>) -> Self {
        for (shape, handler) in &mut self.topics {
            *handler = wrap(&shape.name, handler.clone());
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
            At::Url(url) => Arc::new(RedisStore::with_options(&url, self.answer_within)?),
        };
        let foreign = store.foreign();
        if let Some((shape, _)) =
            self.topics.iter().find(|(shape, _)| shape.attach.is_some() && foreign.is_none())
        {
            let message = "keys of other programs are on a server, and this store has none";
            return Err(Error::invalid(format!("attached topic {}: {message}", shape.name)));
        }
        let limits = self.topics.iter().map(|(shape, _)| shape.concurrency);
        let places = Arc::new(Places::new(self.concurrency, limits));
        let topics: Vec<_> = (self.topics.into_iter().enumerate())
            .map(|(index, (shape, handler))| Arc::new(TopicRun::new(index, shape, handler)))
            .collect();
        let suspects =
            Arc::new(Suspects::new(topics.iter().map(|topic| topic.shape.partitions as usize).sum()));
        // Virtual time stands still while there is work to do, so company comes anyway.
        let linger = if store.virtual_time() { Duration::ZERO } else { LINGER };
        let shared = Shared {
            places,
            suspects: suspects.clone(),
            outage: Arc::default(),
            foreign: foreign.clone(),
            linger,
        };
        let desks = open_desks(&topics, &self.namespace, &shared);
        let core = Core {
            store,
            topics,
            desks,
            router,
            suspects,
            stats: ListenerCounters::default(),
            foreign,
            standing: Arc::default(),
            manage_notifications: self.manage_notifications,
        };
        Ok(Listener { core: Arc::new(core), grace: self.grace })
    }
}

impl fmt::Debug for ListenerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let topics: Vec<_> = self.topics.iter().map(|(shape, _)| &shape.name).collect();
        f.debug_struct("ListenerBuilder").field("topics", &topics).finish_non_exhaustive()
    }
}

fn route(topics: &[(Shape, Arc<dyn AnyHandler>)], namespace: &str) -> Result<Router<usize>> {
    let mut router = Router::new();
    let mut names = HashMap::new();
    for (index, (shape, _)) in topics.iter().enumerate() {
        shape.check(namespace)?;
        if let Some(other) = names.insert(shape.name.as_str(), &shape.pattern) {
            let message = format!(
                "patterns {other} and {} share the topic name {}; give one of them another with Topic::named",
                shape.pattern, shape.name
            );
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        router.insert(shape.pattern.clone(), index)?;
    }
    Ok(router)
}

fn open_desks(topics: &[Arc<TopicRun>], namespace: &str, shared: &Shared) -> Vec<Arc<Desk>> {
    let mut desks = Vec::new();
    for topic in topics {
        topic.first_desk.set(desks.len()).unwrap_or_default();
        for at in topic.shape.all_partitions(namespace) {
            let desk = Desk::new(desks.len(), at, topic.clone(), shared);
            desks.push(Arc::new(desk));
        }
    }
    desks
}
