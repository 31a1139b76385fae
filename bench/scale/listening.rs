//! Listeners whose handlers do nothing but note when they were started.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use keylapse::stats::Stats;
use keylapse::{Done, Failure, Lapse, Listener, Topic};
use keylapse_bench::Fault;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// When handlers were started, and how late that was, in ms; negative: early.
#[derive(Debug)]
pub(crate) struct Starts {
    at: Mutex<Vec<(Instant, f64)>>,
    wanted: usize,
    all: Notify,
}

impl Starts {
    /// Waits for so many.
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

    /// Once all have started: what was noted, in the order in which they did.
    pub(crate) async fn all(&self) -> Result<Vec<(Instant, f64)>, Fault> {
        let waited = timeout(PATIENCE, self.all.notified()).await;
        let at = std::mem::take(&mut *self.at.lock().unwrap_or_else(PoisonError::into_inner));
        waited.map_err(|_| format!("{} of {} timers ran in time", at.len(), self.wanted))?;
        Ok(at)
    }
}

/// A listener that runs.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<keylapse::Result<()>>,
    stats: Stats,
}

impl Running {
    /// Starts one.
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

    /// Waits until it hears so many servers, and has looked at each for so many times.
    pub(crate) async fn until_settled(&self, servers: u64, sweeps: u64) -> Result<(), Fault> {
        until("the listener to settle", || {
            let seen = self.stats.listener();
            seen.anchored >= servers && seen.sweeps >= servers * sweeps
        })
        .await
    }

    /// Expired keys that it has heard.
    pub(crate) fn heard(&self) -> u64 {
        self.stats.total().announced
    }

    /// Stops it, and waits until it has settled everything.
    pub(crate) async fn end(self) -> Result<(), Fault> {
        let _ = self.stop.send(());
        Ok(self.task.await??)
    }
}

/// Waits until this holds.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) -> Result<(), Fault> {
    let waiting = async {
        while !holds() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    Ok(timeout(PATIENCE, waiting).await.map_err(|_| format!("waited for {what} for {PATIENCE:?}"))?)
}
