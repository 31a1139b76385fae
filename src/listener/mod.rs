//! The listener, its builder, its health and its counters.

mod builder;
#[cfg(test)]
mod defaults_tests;
mod health;
mod run;
mod start;

pub use self::builder::ListenerBuilder;
pub use self::health::{AttachedBacklog, Capacity, Health, TopicHealth};

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tracing::dispatcher::Dispatch;

use crate::client::Client;
use crate::error::{Error, Result};
use crate::figures::Distribution;
use crate::runtime::{EventMode, Runtime};
use crate::stats::{AttachedStats, ListenerStats, TopicStats};

/// Claims timers when they are due, and runs their handlers.
///
/// ```no_run
/// use keylapse::{Done, Lapse, Listener, Topic, shutdown_signal};
///
/// async fn close(lapse: Lapse<u64>) -> std::io::Result<Done> {
///     println!("order {:?} is overdue, {} cents", lapse.capture("id"), lapse.payload());
///     Ok(Done)
/// }
///
/// # async fn run() -> keylapse::Result<()> {
/// let orders = Topic::<u64>::new("order:unpaid:{id}")?;
/// Listener::builder("redis://127.0.0.1/")
///     .on(orders, close)
///     .build()?
///     .run_until(shutdown_signal())
///     .await
/// # }
/// ```
#[derive(Debug)]
pub struct Listener {
    pub(crate) runtime: Arc<Runtime>,
    grace: Duration,
    manage_notifications: bool,
    handlers: Option<Handle>,
    /// The tracing subscriber of the thread that built the listener.
    subscriber: Dispatch,
}

impl Listener {
    /// Returns a builder of a listener for a server, given by its URL or as a [`Client`].
    pub fn builder<C>(client: C) -> ListenerBuilder
    where
        C: TryInto<Client, Error: Into<Error>>,
    {
        ListenerBuilder::new(client.try_into().map_err(Into::into))
    }

    /// Runs the listener until `shutdown` completes, with any output. The listener then stops claiming, and waits for
    /// running attempts within the grace time. It stops the others and releases their timers, which uses up no
    /// attempt. A handler that blocks its thread cannot be stopped: its timer runs again when its lease ends.
    ///
    /// [`shutdown_signal`](crate::shutdown_signal) completes at SIGINT and SIGTERM. Call [`stats`](Self::stats) first
    /// to read the counters while the listener runs.
    ///
    /// If the server is unreachable, slow or full, the listener logs that, and waits as long as necessary.
    ///
    /// A thread of the listener claims and settles timers and renews leases. Handlers run on the runtime that awaits
    /// this method, or on [another](ListenerBuilder::handlers_on).
    ///
    /// **If the future is dropped**, for example by `select!` or a timeout, that thread ends. Each handler loses its
    /// lease immediately, and is dropped at its next `await`. No timer is released: the claimed timers run again when
    /// their leases end, in this or another listener. Prefer a `shutdown` that completes.
    ///
    /// # Errors
    /// At the start, returns errors that an operator has to correct. Examples are a wrong password, a missing
    /// permission, another number of partitions, or a server that is too old. Returns
    /// [`Invalid`](crate::ErrorKind::Invalid) if no tokio runtime exists for handlers, or if it has no timers.
    ///
    /// Later, returns only [`Internal`](crate::ErrorKind::Internal), if a part of the listener has panicked, or the
    /// runtime of the handlers was shut down. The listener has then stopped as after `shutdown`.
    pub async fn run_until(self, shutdown: impl Future) -> Result<()> {
        run::run(self, shutdown).await
    }

    /// Returns a view of the listener's health, for the program's readiness probe. Call it before
    /// [`run_until`](Self::run_until): the view stays current.
    pub fn health(&self) -> Health {
        Health(self.runtime.clone())
    }

    /// Returns a view of the listener's counters. Call it before [`run_until`](Self::run_until): the view stays
    /// current.
    pub fn stats(&self) -> Stats {
        Stats(self.runtime.clone())
    }
}

/// A view of a listener's counters.
///
/// ```
/// # use keylapse::{Done, Lapse, Listener, Topic};
/// # async fn close(_: Lapse<u64>) -> std::io::Result<Done> { Ok(Done) }
/// let orders = Topic::<u64>::new("order:unpaid:{id}")?;
/// let listener = Listener::builder("redis://127.0.0.1/").on(orders, close).build()?;
/// let stats = listener.stats(); // before `run_until`, which takes the listener
///
/// let orders = stats.topic("order.unpaid").ok_or("no such topic")?;
/// assert_eq!((orders.handled, orders.failed, orders.dead), (0, 0, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Stats(Arc<Runtime>);

impl Stats {
    /// Returns the counters of one topic, or `None` if the listener does not have it.
    pub fn topic(&self, name: &str) -> Option<TopicStats> {
        let topic = self.0.topics.iter().find(|topic| topic.config.name == name)?;
        Some(topic.stats.snapshot())
    }

    /// Returns the sums over all topics.
    pub fn total(&self) -> TopicStats {
        let mut total = TopicStats::default();
        self.0.topics.iter().for_each(|topic| total += topic.stats.snapshot());
        total
    }

    /// Returns how late the attempts of a topic started, or `None` if the listener does not have it.
    pub fn lateness(&self, name: &str) -> Option<Distribution> {
        let topic = self.0.topics.iter().find(|topic| topic.config.name == name)?;
        Some(topic.meter.lateness.snapshot())
    }

    /// Returns how long the handler of a topic took, or `None` if the listener does not have it.
    pub fn handler_times(&self, name: &str) -> Option<Distribution> {
        let topic = self.0.topics.iter().find(|topic| topic.config.name == name)?;
        Some(topic.meter.handler.snapshot())
    }

    /// Returns a view of the listener's health.
    pub fn health(&self) -> Health {
        Health(self.0.clone())
    }

    /// Returns the counters of an attached topic's keys, or `None` if the listener has no such attached topic.
    pub fn attached(&self, name: &str) -> Option<AttachedStats> {
        let topic = self.0.topics.iter().find(|topic| topic.config.name == name)?;
        topic.config.attach.as_ref().map(|_| topic.attached.snapshot())
    }

    /// Returns which events of attached keys the listener receives. Without attached topics, the mode is about
    /// expired keys of managed topics: `Expired`, `ScanOnly` or `Unsubscribed`.
    pub fn mode(&self) -> EventMode {
        self.0.mode()
    }

    /// Returns the counters of the subscription and the sweeps.
    pub fn listener(&self) -> ListenerStats {
        self.0.stats.snapshot()
    }
}

/// Completes when the program receives SIGINT (ctrl-c) or SIGTERM, for
/// [`Listener::run_until`](crate::Listener::run_until). On other systems than Unix, only ctrl-c counts.
///
/// After the first poll, these signals no longer end the program by themselves, even once the future has completed.
/// The builder's [`grace`](crate::ListenerBuilder::grace) limits how long the shutdown takes. If the system refuses
/// to deliver a signal, this is logged, and that signal ends the program immediately.
///
/// ```no_run
/// use keylapse::{Listener, shutdown_signal};
///
/// # async fn serve_http() {}
/// # async fn run(listener: Listener) -> keylapse::Result<()> {
/// listener
///     .run_until(async {
///         tokio::select! {
///             () = shutdown_signal() => {}
///             () = serve_http() => {} // the listener also stops when the web server ends
///         }
///     })
///     .await
/// # }
/// ```
///
/// # Panics
/// Panics if the tokio runtime was built without `enable_io`.
#[cfg(unix)]
pub async fn shutdown_signal() {
    use tokio::signal::unix::SignalKind;
    tokio::select! {
        () = wait_for_signal(SignalKind::interrupt()) => {}
        () = wait_for_signal(SignalKind::terminate()) => {}
    }
}

#[cfg(unix)]
async fn wait_for_signal(kind: tokio::signal::unix::SignalKind) {
    match tokio::signal::unix::signal(kind) {
        Ok(mut signal) => drop(signal.recv().await),
        Err(error) => never(kind.as_raw_value(), &error).await,
    }
}

/// Completes when the program receives ctrl-c, for [`Listener::run_until`](crate::Listener::run_until).
#[cfg(not(unix))]
pub async fn shutdown_signal() {
    if let Err(error) = tokio::signal::ctrl_c().await {
        never("ctrl-c", &error).await;
    }
}

/// Logs that a signal cannot be received, and never completes: the failure is no reason to stop.
async fn never(signal: impl std::fmt::Debug, error: &std::io::Error) {
    crate::log::warn!(?signal, %error, "cannot receive a signal: it will end the program immediately");
    std::future::pending::<()>().await;
}

#[cfg(all(test, unix))]
mod signal_tests {
    use futures::FutureExt;
    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    #[tokio::test]
    async fn both_signals_ask_to_stop() {
        for signal in [Signal::TERM, Signal::INT] {
            let mut asked = Box::pin(shutdown_signal());
            assert!(asked.as_mut().now_or_never().is_none(), "no signal was sent yet");
            kill_process(getpid(), signal).expect("it is our own process");
            let limit = std::time::Duration::from_secs(20);
            tokio::time::timeout(limit, asked).await.expect("the signal arrives");
        }
    }
}
