//! Internals for the console, the test kit and this repository's tests. They change in any release: console and test
//! kit depend on exactly one version of the library.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

pub use crate::handler::AttemptFuture;
pub use crate::rounds::VirtualTime;
pub use crate::topic::TopicConfig;

use crate::client::Client;
use crate::error::Result;
use crate::lapse::Lapse;
use crate::listener::ListenerBuilder;
use crate::schedule::{KeyArgs, Schedule};
use crate::topic::Topic;
use crate::wire::Store;

/// Access to the internals of a client.
pub trait ClientInside {
    /// Returns a client of a store, with default settings.
    fn of_store(store: Store) -> Self;
    /// Returns the client with a virtual clock instead of the system's clock.
    fn in_virtual_time(self, time: Arc<dyn VirtualTime>) -> Self;
    /// Returns the store, which makes the calls.
    fn store(&self) -> &Store;
    /// Returns the prefix of all names in Redis.
    fn prefix(&self) -> &str;
    /// Returns how long the server may take to answer one call.
    fn answers_within(&self) -> Duration;
    /// Rejects settings that contradict each other.
    ///
    /// # Errors
    /// Returns an error of kind [`Invalid`](crate::ErrorKind::Invalid). The message has the correction.
    fn check_settings(&self) -> Result<()>;
}

impl ClientInside for Client {
    fn of_store(store: Store) -> Self {
        Self::over(store)
    }

    fn in_virtual_time(self, time: Arc<dyn VirtualTime>) -> Self {
        Self { virtual_time: Some(time), ..self }
    }

    fn store(&self) -> &Store {
        &self.store
    }

    fn prefix(&self) -> &str {
        &self.namespace
    }

    fn answers_within(&self) -> Duration {
        self.answer_within
    }

    fn check_settings(&self) -> Result<()> {
        Self::check(self)
    }
}

/// Access to the internals of a schedule.
pub trait ScheduleInside {
    /// Makes a call, and repeats it until it is answered or the client's `retry_for` has passed. `call` receives
    /// whether it is a repeat.
    fn repeated<T, F: Future<Output = Result<T>>>(
        &self,
        call: impl FnMut(bool) -> F,
    ) -> impl Future<Output = Result<T>>;
    /// Treats a topic as registered. The caller has read it in the registry.
    fn take_as_registered(&self, config: &TopicConfig);
}

impl ScheduleInside for Schedule {
    fn repeated<T, F: Future<Output = Result<T>>>(
        &self,
        call: impl FnMut(bool) -> F,
    ) -> impl Future<Output = Result<T>> {
        Self::persist(self, call)
    }

    fn take_as_registered(&self, config: &TopicConfig) {
        Self::adopt(self, config);
    }
}

/// Access to the settings of a topic.
pub trait TopicInside {
    /// Returns the settings.
    fn config(&self) -> &TopicConfig;
    /// Returns the settings for a change.
    fn config_mut(&mut self) -> &mut TopicConfig;
}

impl<T> TopicInside for Topic<T> {
    fn config(&self) -> &TopicConfig {
        &self.config
    }

    fn config_mut(&mut self) -> &mut TopicConfig {
        &mut self.config
    }
}

/// Wraps each attempt of the handlers that the builder has so far. `around` receives the topic's name, the lapse
/// without its payload, and the attempt's future, which was not polled yet.
pub fn around_attempts<S>(
    builder: ListenerBuilder<S>,
    around: impl Fn(&str, &Lapse<()>, AttemptFuture) -> AttemptFuture + Send + Sync + 'static,
) -> ListenerBuilder<S> {
    let around = Arc::new(around);
    builder.wrap(|topic, handler| {
        let (topic, around) = (topic.to_owned(), around.clone());
        Arc::new(move |about, payload| {
            let attempt = handler(about.clone(), payload)?;
            Ok(around(&topic, &Lapse { about, payload: () }, attempt))
        })
    })
}

/// Returns the key of a topic that `args` name.
///
/// # Errors
/// Returns an error if the key does not belong to the topic.
pub fn key_of<T>(schedule: &Schedule, topic: &Topic<T>, args: &impl KeyArgs) -> Result<Bytes> {
    schedule.key_of(&topic.config, args)
}

/// The event stream of a server.
pub mod receiving {
    use std::sync::Arc;

    use tokio::sync::{mpsc, watch};

    pub use crate::events::tail::{TailConnection, TailMessage};
    pub use crate::events::{Decoded, Decoder, ExpirySubscription, SubscribedConnection, event};
    use crate::events::{Deployment, NodeAssignment, SubscriptionSource};
    use crate::rounds::PollTimer;
    use crate::wire::{PartitionNames, Store, names};

    /// Subscribes to the events of partitions, and returns them. The partitions must exist on one server.
    ///
    /// # Panics
    /// Panics if `partitions` is empty.
    pub fn events(store: &Store, partitions: &[PartitionNames]) -> mpsc::Receiver<event::Event> {
        let server = store.topology().only().expect("the store must have one server");
        let namespace = &partitions[0].namespace;
        let decoder = Decoder::new(namespace, store.target().options.db, partitions, &[], false);
        let canaries = Some(names::canary(namespace, 0));
        let assignment = NodeAssignment { partitions: (0..partitions.len()).collect(), canaries };
        let (_, assignment) = watch::channel(assignment);
        let (server, prompts, rounds) = (server.clone(), Arc::default(), PollTimer::default());
        let source = SubscriptionSource {
            server,
            deployment: Deployment::Alone,
            slots_move: false,
            decoder,
            assignment,
            prompts,
            rounds,
        };
        let (stream, supervisor) = source.open();
        tokio::spawn(supervisor);
        stream.events
    }
}
