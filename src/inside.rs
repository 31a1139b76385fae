//! The console, the test kit and this repository's tests reach the library's inside through this module. It changes at any
//! time: console and kit name exactly one version of the library.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

pub use crate::handler::Attempt;
pub use crate::rounds::VirtualTime;
pub use crate::topic::TopicConfig;

use crate::client::Client;
use crate::error::Result;
use crate::lapse::Lapse;
use crate::listener::ListenerBuilder;
use crate::schedule::{KeyArgs, Schedule};
use crate::topic::Topic;
use crate::wire::Store;

/// The servers behind a client.
pub trait ClientInside {
    /// Returns a client of a store, with the defaults.
    fn of_store(store: Store) -> Self;
    /// Returns the same client in this time, in place of the system's.
    fn in_virtual_time(self, time: Arc<dyn VirtualTime>) -> Self;
    /// Returns what calls are made with.
    fn store(&self) -> &Store;
    /// Returns the prefix of all names in Redis.
    fn prefix(&self) -> &str;
    /// Returns how long the server may take to answer one call.
    fn answers_within(&self) -> Duration;
    /// Refuses settings that contradict one another.
    ///
    /// # Errors
    /// Of kind [`Invalid`](crate::ErrorKind::Invalid), with what to do.
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

/// Calls that a schedule repeats until the client's patience ends.
pub trait ScheduleInside {
    /// Makes a call, and repeats it while it has no answer; the call is passed whether it is a repeat.
    fn repeated<T, F: Future<Output = Result<T>>>(
        &self,
        call: impl FnMut(bool) -> F,
    ) -> impl Future<Output = Result<T>>;
    /// Takes a topic as registered, as the registry has it.
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

/// Everything about a topic but the type of its payload.
pub trait TopicInside {
    /// Returns it.
    fn config(&self) -> &TopicConfig;
    /// Returns it, to be changed.
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

/// Puts something around each attempt of the handlers so far: it gets the topic's name, the lapse without its payload, and
/// the attempt, which has not begun.
pub fn around_attempts<S>(
    builder: ListenerBuilder<S>,
    around: impl Fn(&str, &Lapse<()>, Attempt) -> Attempt + Send + Sync + 'static,
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

/// Returns the key that these name in a topic.
///
/// # Errors
/// When it cannot be one of the topic's.
pub fn key_of<T>(schedule: &Schedule, topic: &Topic<T>, args: &impl KeyArgs) -> Result<Bytes> {
    schedule.key_of(&topic.config, args)
}

/// What is heard of a server.
pub mod hearing {
    use std::sync::Arc;

    use tokio::sync::{mpsc, watch};

    pub use crate::events::tail::{Overheard, TailLine};
    use crate::events::{Among, Share, Source};
    pub use crate::events::{Decoded, Decoder, Earshot, Voice, event};
    use crate::rounds::Rounds;
    use crate::wire::{PartitionNames, Store, names};

    /// Returns what is heard about these partitions, which there are.
    ///
    /// # Panics
    /// Without any.
    pub fn events(store: &Store, partitions: &[PartitionNames]) -> mpsc::Receiver<event::Event> {
        let server = store.topology().only().expect("of one server");
        let namespace = &partitions[0].namespace;
        let decoder = Decoder::new(namespace, store.target().access.db, partitions, &[], false);
        let canaries = Some(names::canary(namespace, 0));
        let share = Share { partitions: (0..partitions.len()).collect(), canaries };
        let (_, share) = watch::channel(share);
        let (server, prompts, rounds) = (server.clone(), Arc::default(), Rounds::default());
        let source =
            Source { server, among: Among::Alone, slots_move: false, decoder, share, prompts, rounds };
        let (stream, supervisor) = source.open();
        tokio::spawn(supervisor);
        stream.events
    }
}
