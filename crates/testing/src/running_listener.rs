//! A listener that runs in the background of a test.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use tokio::sync::{Notify, oneshot};
use tokio::task::{AbortHandle, JoinHandle};

use crate::run_log::{OpenRun, RunEnd, RunLog};
use keylapse::inside::AttemptFuture;
use keylapse::stats::Stats;
use keylapse::{Error, ErrorKind, Failure, Lapse, Listener, Outcome, Result};
use keylapse_connection::panics::panic_message;

/// A listener of a [`TestBed`](super::TestBed). It listens until it is stopped or
/// crashed, or its bed is gone; dropping this changes nothing.
#[derive(Debug)]
pub struct RunningListener {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<()>>,
    stats: Stats,
    pub(super) abort_handle: ListenerAbortHandle,
}

/// What can be ended at any moment: a listener's tasks, and its handlers.
#[derive(Clone, Debug)]
pub(super) struct ListenerAbortHandle {
    tasks: AbortHandle,
    handlers: Arc<CrashSignal>,
}

impl ListenerAbortHandle {
    pub(super) fn abort(&self) {
        self.tasks.abort();
        self.handlers.raise();
    }
}

impl RunningListener {
    pub(super) fn start(listener: Listener, crash: Arc<CrashSignal>) -> Self {
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
        let life = ListenerAbortHandle { tasks: task.abort_handle(), handlers: crash };
        Self { stop, task, stats, abort_handle: life }
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
        self.abort_handle.abort();
        let _ = self.task.await; // says that it was aborted
    }
}

/// Writes down what handlers do, and ends them where their process is to end.
#[derive(Clone)]
pub(super) struct Recorder {
    pub(super) run_log: RunLog,
    pub(super) crash: Arc<CrashSignal>,
}

impl Recorder {
    /// The attempt that is watched, in its place.
    pub(super) fn wrap_attempt(
        self,
        topic: &str,
        lapse: &Lapse<()>,
        attempt: AttemptFuture,
    ) -> AttemptFuture {
        if self.crash.has_happened() {
            return futures::future::pending().boxed();
        }
        let entry = RunGuard(self.run_log.begin(topic, lapse));
        async move { self.watch(attempt, entry).await }.boxed()
    }

    async fn watch(&self, attempt: AttemptFuture, entry: RunGuard) -> Result<Outcome, Failure> {
        let ended = tokio::select! {
            biased;
            () = self.crash.happens() => None,
            ended = AssertUnwindSafe(attempt).catch_unwind() => Some(ended),
        };
        let Some(ended) = ended else {
            entry.0.end(RunEnd::Crashed);
            return futures::future::pending().await; // the dead tell nothing
        };
        entry.0.end(match &ended {
            Ok(Ok(outcome)) => RunEnd::Returned(*outcome),
            Ok(Err(failure)) => RunEnd::Failed(failure.message().to_owned()),
            Err(panic) => RunEnd::Panicked(panic_message(&**panic).to_owned()),
        });
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// An attempt that is dropped before its end was stopped.
struct RunGuard(OpenRun);

impl Drop for RunGuard {
    fn drop(&mut self) {
        self.0.end(RunEnd::Stopped);
    }
}

/// The sudden end of a listener and everything that it runs.
#[derive(Debug, Default)]
pub(super) struct CrashSignal {
    happened: AtomicBool,
    happens: Notify,
}

impl CrashSignal {
    pub(super) fn raise(&self) {
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
