//! The starts of handlers, and a listener that notes them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use keylapse::stats::Stats;
use keylapse::{Done, Failure, Lapse, Listener, Topic};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use crate::Fault;
use crate::orders::Orders;

/// A counter of starts, with the times of the first and the last.
#[derive(Debug)]
pub(crate) struct Counted {
    since: Instant,
    count: AtomicUsize,
    first: AtomicU64,
    last: AtomicU64,
    wanted: usize,
    all: Notify,
}

impl Counted {
    /// Creates a record that waits for `wanted` starts.
    pub(crate) fn new(wanted: usize) -> Arc<Self> {
        Arc::new(Self {
            since: Instant::now(),
            count: AtomicUsize::new(0),
            first: AtomicU64::new(u64::MAX),
            last: AtomicU64::new(0),
            wanted,
            all: Notify::new(),
        })
    }

    /// Notes that a handler has started.
    pub(crate) fn note(&self) {
        let now = u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let before = self.count.fetch_add(1, Ordering::Relaxed);
        if before == 0 {
            self.first.store(now, Ordering::Relaxed);
        }
        self.last.fetch_max(now, Ordering::Relaxed);
        if before + 1 == self.wanted {
            self.all.notify_one();
        }
    }

    /// Waits until all have started.
    pub(crate) async fn all(&self) {
        self.all.notified().await;
    }

    /// Returns the number of starts, and the seconds between the first and the last.
    pub(crate) fn taken(&self) -> (usize, f64) {
        let span = self.last.load(Ordering::Relaxed).saturating_sub(self.first.load(Ordering::Relaxed));
        (self.count.load(Ordering::Relaxed), Duration::from_nanos(span).as_secs_f64())
    }
}

/// The starts of jobs: number, and time in µs since 1970.
#[derive(Debug)]
pub(crate) struct Starts {
    at: Mutex<Vec<(usize, u64)>>,
    wanted: usize,
    all: Notify,
}

impl Starts {
    /// Creates a record that waits for `wanted` starts.
    pub(crate) fn new(wanted: usize) -> Arc<Self> {
        Arc::new(Self { at: Mutex::new(Vec::with_capacity(wanted.min(1 << 20))), wanted, all: Notify::new() })
    }

    /// Notes that a job's handler has started.
    pub(crate) fn note(&self, number: usize) {
        let now = micros(SystemTime::now());
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        at.push((number, now));
        if at.len() == self.wanted {
            self.all.notify_one();
        }
    }

    /// Waits until all have started.
    pub(crate) async fn all(&self) {
        self.all.notified().await;
    }

    /// Returns the starts.
    pub(crate) fn taken(&self) -> Vec<(usize, u64)> {
        std::mem::take(&mut self.at.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns a time in µs since 1970.
pub(crate) fn micros(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// A running listener.
#[derive(Debug)]
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<keylapse::Result<()>>,
    /// The statistics of the listener.
    pub(crate) stats: Stats,
}

impl Running {
    /// Starts a listener of one topic whose handler only calls `note`.
    pub(crate) fn start(
        orders: &Orders,
        topic: Topic<Bytes>,
        note: impl Fn(&Lapse<Bytes>) + Clone + Send + Sync + 'static,
    ) -> Result<Self, Fault> {
        let handler = move |lapse: Lapse<Bytes>| {
            note(&lapse);
            std::future::ready(Ok::<_, Failure>(Done))
        };
        let url = orders.line.as_deref().unwrap_or(&orders.url);
        let builder = Listener::builder(url).concurrency(orders.concurrency);
        Ok(Self::of(builder.on(topic, handler).build()?))
    }

    /// Runs a listener.
    pub(crate) fn of(listener: Listener) -> Self {
        let (stop, stopped) = oneshot::channel();
        let stats = listener.stats();
        let task = tokio::spawn(async move {
            let shutdown = async {
                let _ = stopped.await;
            };
            listener.run_until(shutdown).await
        });
        Self { stop, task, stats }
    }

    /// Stops the listener, and waits until it has settled all attempts.
    pub(crate) async fn end(self) -> Result<(), Fault> {
        let _ = self.stop.send(());
        Ok(self.task.await??)
    }
}
