//! A listener that runs in the background of a test.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use tokio::sync::{Notify, oneshot};
use tokio::task::{AbortHandle, JoinHandle};

use crate::ledger::{End, Entry, Ledger};
use keylapse::inside::Attempt;
use keylapse::stats::Stats;
use keylapse::{Error, ErrorKind, Failure, Lapse, Listener, Outcome, Result};
use keylapse_connection::panics::panic_message;

/// A listener of a [`TestBed`](super::TestBed). It listens until it is stopped or
/// crashed, or its bed is gone; dropping this changes nothing.
#[derive(Debug)]
pub struct Listening {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<()>>,
    stats: Stats,
    pub(super) life: Life,
}

/// What can be ended at any moment: a listener's tasks, and its handlers.
#[derive(Clone, Debug)]
pub(super) struct Life {
    tasks: AbortHandle,
    handlers: Arc<Crash>,
}

impl Life {
    pub(super) fn end(&self) {
        self.tasks.abort();
        self.handlers.strike();
    }
}

impl Listening {
    pub(super) fn start(listener: Listener, crash: Arc<Crash>) -> Self {
        let (stop, asked) = oneshot::channel::<()>();
        let stats = listener.stats();
        let task = tokio::spawn(async move {
            let stopped = async {
                if asked.await.is_err() {
                    std::future::pending::<()>().await; // nobody can ask any more
                }
            };
            listener.run_until(stopped).await
        });
        let life = Life { tasks: task.abort_handle(), handlers: crash };
        Self { stop, task, stats, life }
    }

    /// What the listener has counted.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Shuts it down as a deployment does: attempts may end within the builder's
    /// [`grace`](keylapse::ListenerBuilder::grace), what is left is handed back.
    ///
    /// # Errors
    /// Those of [`Listener::run_until`].
    pub async fn stop(self) -> Result<()> {
        let _ = self.stop.send(()); // it may have ended with an error already
        self.task.await.unwrap_or_else(|error| {
            Err(Error::new(ErrorKind::Server, format!("the listener's task ended by itself: {error}")))
        })
    }

    /// Ends it and its handlers, wherever they are, as a crash of the process
    /// does. What it held runs elsewhere when its leases end.
    pub async fn crash(self) {
        self.life.end();
        let _ = self.task.await; // says that it was aborted
    }
}

/// Writes down what handlers do, and ends them where their process is to end.
#[derive(Clone)]
pub(super) struct Recorder {
    pub(super) ledger: Ledger,
    pub(super) crash: Arc<Crash>,
}

impl Recorder {
    /// The attempt that is watched, in its place.
    pub(super) fn around(self, topic: &str, lapse: &Lapse<()>, attempt: Attempt) -> Attempt {
        if self.crash.has_happened() {
            return futures::future::pending().boxed();
        }
        let entry = Stopped(self.ledger.begin(topic, lapse));
        async move { self.watch(attempt, entry).await }.boxed()
    }

    async fn watch(&self, attempt: Attempt, entry: Stopped) -> Result<Outcome, Failure> {
        let ended = tokio::select! {
            biased;
            () = self.crash.happens() => None,
            ended = AssertUnwindSafe(attempt).catch_unwind() => Some(ended),
        };
        let Some(ended) = ended else {
            entry.0.end(End::Crashed);
            return futures::future::pending().await; // the dead tell nothing
        };
        entry.0.end(match &ended {
            Ok(Ok(outcome)) => End::Returned(*outcome),
            Ok(Err(failure)) => End::Failed(failure.message().to_owned()),
            Err(panic) => End::Panicked(panic_message(&**panic).to_owned()),
        });
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// An attempt that is dropped before its end was stopped.
struct Stopped(Entry);

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.end(End::Stopped);
    }
}

/// The sudden end of a listener and everything that it runs.
#[derive(Debug, Default)]
pub(super) struct Crash {
    happened: AtomicBool,
    happens: Notify,
}

impl Crash {
    pub(super) fn strike(&self) {
        self.happened.store(true, Ordering::Release);
        self.happens.notify_waiters();
    }

    fn has_happened(&self) -> bool {
        self.happened.load(Ordering::Acquire)
    }

    async fn happens(&self) {
        let happens = self.happens.notified();
        if !self.has_happened() {
            happens.await;
        }
    }
}
