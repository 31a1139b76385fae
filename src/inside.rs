//! What the operators' console and the test kit need of the library: not part of its promises, it changes at any time.
//!
//! Both are crates of this repository, and name exactly one version of the library.

use std::time::Duration;

pub use crate::events::tail::{Overheard, TailLine};
pub use crate::events::{Earshot, Voice};
pub use crate::topic::TopicConfig;

use crate::client::Client;
use crate::error::Result;
use crate::schedule::Schedule;
use crate::topic::Topic;
use crate::wire::Store;

/// The servers behind a client.
pub trait ClientInside {
    /// Returns a client of a store, with the defaults.
    fn of_store(store: Store) -> Self;
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
