//! The listener: all roles, put together.

mod builder;
#[cfg(test)]
mod defaults_tests;
mod health;
mod run;
mod start;

pub use self::builder::ListenerBuilder;
pub use self::health::{AttachedBacklog, Health, Places, TopicHealth};

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
    /// Whoever read the log when it was built.
    subscriber: Dispatch,
}

impl Listener {
    /// A listener on a server, given by its URL or as a [`Client`].
    pub fn builder<C>(client: C) -> ListenerBuilder
    where
        C: TryInto<Client, Error: Into<Error>>,
    {
        ListenerBuilder::new(client.try_into().map_err(Into::into))
    }

    /// Listens until `shutdown` completes, whatever it answers; then claims
    /// nothing more, waits for running attempts within the grace time, stops what is left, and hands
    /// it back without using up an attempt. A handler that blocks its thread cannot be stopped, and is
    /// not handed back: others run its timer when its lease ends.
    ///
    /// [`shutdown_signal`](crate::shutdown_signal) completes at SIGINT and
    /// SIGTERM. Take [`stats`](Self::stats) before, to look at them meanwhile.
    ///
    /// A server that is away, slow or full is waited for, for as long as it
    /// takes; the log says so.
    ///
    /// Claims, leases and settlements are the work of a thread that this starts; handlers run on the runtime on
    /// which it is awaited, or on [another](ListenerBuilder::handlers_on).
    ///
    /// **If it is dropped** (in a `select!`, by a timeout), that thread ends, each handler has lost its lease at
    /// once, and is dropped at its next `await`. Nothing is handed back: what was running or about to run is run
    /// again when its leases end, by this or another listener. Prefer a `shutdown` that completes.
    ///
    /// # Errors
    /// At the start, for what an operator has to change: a
    /// refused password, a missing permission, another number of partitions or
    /// wire version, a server that is too old. Later only [`Internal`](crate::ErrorKind::Internal), when a part of
    /// the listener has panicked; it has been shut down then as above.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn run_until(self, shutdown: impl Future) -> Result<()> {
        run::run(self, shutdown).await
    }

    /// How it is; can be asked while the listener runs. Take it before [`run_until`](Self::run_until), for the
    /// program's readiness probe.
    pub fn health(&self) -> Health {
        Health(self.runtime.clone())
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

    /// How late the attempts of a topic were started; `None` if the listener does not have it.
    pub fn lateness(&self, name: &str) -> Option<Distribution> {
        let topic = self.0.topics.iter().find(|topic| topic.config.name == name)?;
        Some(topic.meter.lateness.snapshot())
    }

    /// How long the handler of a topic took; `None` if the listener does not have it.
    pub fn handler_times(&self, name: &str) -> Option<Distribution> {
        let topic = self.0.topics.iter().find(|topic| topic.config.name == name)?;
        Some(topic.meter.handler.snapshot())
    }

    /// How the listener is.
    pub fn health(&self) -> Health {
        Health(self.0.clone())
    }

    /// What was counted of an attached topic's keys; `None` if the listener does not have it.
    pub fn attached(&self, name: &str) -> Option<AttachedStats> {
        let topic = self.0.topics.iter().find(|topic| topic.config.name == name)?;
        topic.config.attach.as_ref().map(|_| topic.attached.snapshot())
    }

    /// Returns what can be heard of attached topics' keys. Without such topics it is what is heard of expired keys: `Expired`,
    /// `Blind` or `Unsubscribed`.
    pub fn mode(&self) -> EventMode {
        self.0.mode()
    }

    /// What was counted of the subscription and the sweeps.
    pub fn listener(&self) -> ListenerStats {
        self.0.stats.snapshot()
    }
}

/// Completes when the program is asked to stop: by SIGINT (ctrl-c) or SIGTERM, elsewhere than on Unix by
/// ctrl-c alone. For [`Listener::run_until`](crate::Listener::run_until).
///
/// From its first poll on, these signals no longer end the program by themselves, not even when this has
/// completed: how long the shut-down may take is what the builder's
/// [`grace`](crate::ListenerBuilder::grace) says. If the system refuses to tell of a signal, that is logged,
/// and the signal ends the program at once, as it would without this.
///
/// # Panics
/// Where tokio's runtime was built without `enable_io`.
#[cfg(unix)]
pub async fn shutdown_signal() {
    use tokio::signal::unix::SignalKind;
    tokio::select! {
        () = heard(SignalKind::interrupt()) => {}
        () = heard(SignalKind::terminate()) => {}
    }
}

#[cfg(unix)]
async fn heard(kind: tokio::signal::unix::SignalKind) {
    match tokio::signal::unix::signal(kind) {
        Ok(mut signal) => drop(signal.recv().await),
        Err(error) => never(kind.as_raw_value(), &error).await,
    }
}

/// Completes when the program is asked to stop, by ctrl-c. For
/// [`Listener::run_until`](crate::Listener::run_until).
#[cfg(not(unix))]
pub async fn shutdown_signal() {
    if let Err(error) = tokio::signal::ctrl_c().await {
        never("ctrl-c", &error).await;
    }
}

/// A signal that cannot be heard is no reason to stop.
async fn never(signal: impl std::fmt::Debug, error: &std::io::Error) {
    crate::log::warn!(?signal, %error, "cannot hear a signal: it will end this program at once");
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
            assert!(asked.as_mut().now_or_never().is_none(), "nobody has asked yet");
            kill_process(getpid(), signal).expect("it is our own process");
            let patience = std::time::Duration::from_secs(20);
            tokio::time::timeout(patience, asked).await.expect("the signal is heard");
        }
    }
}
