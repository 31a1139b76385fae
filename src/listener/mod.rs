//! The listener: all roles, put together.

mod builder;
mod partition;
mod hearing;
mod housekeeper;
mod run;
mod sweeper;
#[cfg(test)]
mod tests;
mod touches;

pub use builder::ListenerBuilder;
pub(crate) use partition::{Partition, RunningTopic};
pub(crate) use touches::Touches;
#[cfg(test)]
pub(crate) use touches::touches;

use std::sync::Arc;
use std::time::Duration;

use crate::attached::mode::Mode;
use crate::attached::stream_state::StreamState;
use crate::runtime::quarantine::Quarantine;
use crate::error::Result;
use crate::pattern::router::Router;
use crate::stats::{AttachedStats, ListenerCounters, ListenerStats, TopicStats};
use crate::wire::Store;
use crate::wire::attached::ForeignKeys;

/// Hears keys lapse and runs their handlers.
///
/// ```no_run
/// use keylapse::{Done, Failure, Lapse, Listener, Topic};
///
/// async fn close(lapse: Lapse<u64>) -> Result<Done, Failure> {
///     println!("order {:?} is overdue, {} cents", lapse.capture("id"), lapse.payload());
///     Ok(Done)
/// }
///
/// # async fn run() -> keylapse::Result<()> {
/// let orders = Topic::<u64>::new("order:unpaid:{id}")?;
/// Listener::builder("redis://127.0.0.1/")
///     .on(orders, close)
///     .build()?
///     .run_until(async { tokio::signal::ctrl_c().await.unwrap_or_default() })
///     .await
/// # }
/// ```
#[derive(Debug)]
pub struct Listener {
    runtime: Arc<Runtime>,
    grace: Duration,
}

/// What all roles of a listener share.
#[derive(Debug)]
pub(crate) struct Runtime {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) topics: Vec<Arc<RunningTopic>>,
    pub(crate) partitions: Vec<Arc<Partition>>,
    /// From a key to the place of its topic.
    pub(crate) router: Router<usize>,
    pub(crate) quarantine: Arc<Quarantine>,
    pub(crate) stats: ListenerCounters,
    pub(crate) manage_notifications: bool,
    /// The keys of other programs, for attached topics.
    pub(crate) foreign: Option<Arc<dyn ForeignKeys>>,
    /// What is known of the stream, for attached topics.
    pub(crate) stream_state: Arc<StreamState>,
}

impl Listener {
    /// A listener at a server's URL.
    pub fn builder(url: impl Into<String>) -> ListenerBuilder {
        ListenerBuilder::at_url(url.into())
    }

    /// A listener on a store: to share a connection, or to test handlers with a
    /// [`MemoryStore`](crate::wire::memory::MemoryStore).
    pub fn builder_on(store: impl Store) -> ListenerBuilder {
        ListenerBuilder::on_store(Arc::new(store))
    }

    /// Listens until `shutdown` completes; then claims nothing more, waits for
    /// running attempts within the grace time, and hands back what is left
    /// without using up an attempt.
    ///
    /// A server that is away, slow or full is waited for, for as long as it
    /// takes; the log says so.
    ///
    /// # Errors
    /// Only at the start, and only for what an operator has to change: a
    /// refused password, a missing permission, another number of partitions,
    /// a server that is too old.
    pub async fn run_until(&self, shutdown: impl Future<Output = ()>) -> Result<()> {
        run::run(&self.runtime, self.grace, shutdown).await
    }

    #[cfg(test)]
    pub(crate) fn runtime(&self) -> &Arc<Runtime> {
        &self.runtime
    }

    /// What was counted so far; can be asked while the listener runs.
    pub fn stats(&self) -> Stats {
        Stats(self.runtime.clone())
    }
}

/// A view of a listener's counters.
#[derive(Clone, Debug)]
pub struct Stats(Arc<Runtime>);

impl Stats {
    /// What was counted of one topic; `None` if the listener does not have it.
    pub fn topic(&self, name: &str) -> Option<TopicStats> {
        let topic = self.0.topics.iter().find(|topic| topic.config.name == name)?;
        Some(topic.stats.snapshot())
    }

    /// The sums over all topics.
    pub fn total(&self) -> TopicStats {
        let mut total = TopicStats::default();
        self.0.topics.iter().for_each(|topic| total += topic.stats.snapshot());
        total
    }

    /// What was counted of an attached topic's keys; `None` if the listener does not have it.
    pub fn attached(&self, name: &str) -> Option<AttachedStats> {
        let topic = self.0.topics.iter().find(|topic| topic.config.name == name)?;
        topic.config.attach.as_ref().map(|_| topic.attached.snapshot())
    }

    /// What can be heard of attached topics' keys.
    pub fn mode(&self) -> Mode {
        self.0.stream_state.mode()
    }

    /// What was counted of the subscription and the sweeps.
    pub fn listener(&self) -> ListenerStats {
        self.0.stats.snapshot()
    }
}
