//! Who listens.

use crate::error::Result;
use crate::schedule::Schedule;
use crate::topic::Topic;
use crate::wire::{ListenerReport, listeners};

impl Schedule {
    /// What each listener of this namespace and database said of itself last. Each reports every five seconds, and
    /// takes its report away when it stops; one of which nothing was heard for 15 s is not among them.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn listeners(&self) -> Result<Vec<ListenerReport>> {
        let hash = listeners(&self.client.namespace);
        self.persist(|_| self.client.store.listeners(&hash)).await
    }

    /// Who serves a topic: the [listeners](Self::listeners) that have it.
    ///
    /// ```no_run
    /// # async fn serves(schedule: keylapse::Schedule, orders: keylapse::Topic<u64>) -> keylapse::Result<()> {
    /// for listener in schedule.serving(&orders).await? {
    ///     println!("{} (process {}) has run {:?}", listener.host, listener.pid, listener.topics["order"].counts);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`listeners`](Self::listeners).
    pub async fn serving<T>(&self, topic: &Topic<T>) -> Result<Vec<ListenerReport>> {
        let mut all = self.listeners().await?;
        all.retain(|listener| listener.serves(topic.name()));
        Ok(all)
    }
}
