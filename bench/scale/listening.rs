//! Listeners whose handlers only note their starts.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use keylapse::stats::Stats;
use keylapse::{Done, Failure, Lapse, Listener, Topic};
use keylapse_bench::Fault;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// The limit of each wait: longer than any step takes on a busy machine.
const MAX_WAIT: Duration = Duration::from_secs(120);

/// The starts of handlers: when, and how late in ms (negative if early).
#[derive(Debug)]
pub(crate) struct Starts {
    at: Mutex<Vec<(Instant, f64)>>,
    wanted: usize,
    all: Notify,
}

impl Starts {
    /// Creates a record that waits for `wanted` starts.
    pub(crate) fn new(wanted: usize) -> Arc<Self> {
        Arc::new(Self { at: Mutex::new(Vec::with_capacity(wanted)), wanted, all: Notify::new() })
    }

    fn note(&self, deadline: SystemTime) {
        let late = match SystemTime::now().duration_since(deadline) {
            Ok(late) => late.as_secs_f64(),
            Err(early) => -early.duration().as_secs_f64(),
        };
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        at.push((Instant::now(), late * 1e3));
        if at.len() == self.wanted {
            self.all.notify_one();
        }
    }

    /// Waits until all have started, and returns the starts in their order.
    pub(crate) async fn all(&self) -> Result<Vec<(Instant, f64)>, Fault> {
        let waited = timeout(MAX_WAIT, self.all.notified()).await;
        let at = std::mem::take(&mut *self.at.lock().unwrap_or_else(PoisonError::into_inner));
        waited.map_err(|_| format!("only {} of {} timers ran within {MAX_WAIT:?}", at.len(), self.wanted))?;
        Ok(at)
    }
}

/// A running listener.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<keylapse::Result<()>>,
    stats: Stats,
}

impl Running {
    /// Starts a listener of a topic.
    pub(crate) fn start(url: &str, topic: &Topic<Bytes>, starts: &Arc<Starts>) -> Result<Self, Fault> {
        let starts = starts.clone();
        let handler = move |lapse: Lapse<Bytes>| {
            starts.note(lapse.deadline());
            std::future::ready(Ok::<_, Failure>(Done))
        };
        let listener = Listener::builder(url).concurrency(1000).on(topic.clone(), handler).build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let stats = listener.stats();
        let task = tokio::spawn(async move {
            let shutdown = async {
                let _ = stopped.await;
            };
            listener.run_until(shutdown).await
        });
        Ok(Self { stop, task, stats })
    }

    /// Waits until it receives the events of all servers, and has swept each of them `sweeps` times.
    pub(crate) async fn until_settled(&self, servers: u64, sweeps: u64) -> Result<(), Fault> {
        until("the listener to settle", || {
            let seen = self.stats.listener();
            seen.anchored >= servers && seen.sweeps >= servers * sweeps
        })
        .await
    }

    /// Returns the number of expired keys that it has received.
    pub(crate) fn expiries(&self) -> u64 {
        self.stats.total().announced
    }

    /// Stops the listener, and waits until it has settled all attempts.
    pub(crate) async fn end(self) -> Result<(), Fault> {
        let _ = self.stop.send(());
        Ok(self.task.await??)
    }
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) -> Result<(), Fault> {
    let waiting = async {
        while !holds() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    Ok(timeout(MAX_WAIT, waiting).await.map_err(|_| format!("waited for {what} for {MAX_WAIT:?}"))?)
}
