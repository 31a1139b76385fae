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

/// A listener of a [`TestBed`](super::TestBed). It runs until [`stop`](Self::stop) or [`crash`](Self::crash), or until
/// the bed is dropped. Dropping this value does not end it.
#[derive(Debug)]
pub struct RunningListener {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<()>>,
    stats: Stats,
    pub(super) abort_handle: ListenerAbortHandle,
}

/// Ends the tasks and handlers of a listener at any moment.
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
        let (stop, stop_requested) = oneshot::channel::<()>();
        let stats = listener.stats();
        let task = tokio::spawn(async move {
            let stopped = async {
                if stop_requested.await.is_err() {
                    std::future::pending::<()>().await; // the `RunningListener` was dropped
                }
            };
            listener.run_until(stopped).await
        });
        let abort_handle = ListenerAbortHandle { tasks: task.abort_handle(), handlers: crash };
        Self { stop, task, stats, abort_handle }
    }

    /// Returns the statistics of the listener.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Shuts the listener down, as a deployment does. Attempts may end within
    /// [`grace`](keylapse::ListenerBuilder::grace), and the other timers are released.
    ///
    /// # Errors
    /// Returns the errors of [`Listener::run_until`].
    pub async fn stop(self) -> Result<()> {
        let _ = self.stop.send(()); // fails if the listener has ended with an error
        self.task.await.unwrap_or_else(|error| {
            Err(Error::new(ErrorKind::Server, format!("the listener's task failed: {error}")))
        })
    }

    /// Ends the listener and its handlers immediately, as a crash of the process does. Other listeners run its timers when
    /// the leases end.
    pub async fn crash(self) {
        self.abort_handle.abort();
        let _ = self.task.await; // returns the error that it was aborted
    }
}

/// Records the runs of handlers, and stops them when their listener crashes.
#[derive(Clone)]
pub(super) struct Recorder {
    pub(super) run_log: RunLog,
    pub(super) crash: Arc<CrashSignal>,
}

impl Recorder {
    /// Returns the attempt's future, wrapped in recording.
    pub(super) fn wrap_attempt(
        self,
        topic: &str,
        lapse: &Lapse<()>,
        attempt: AttemptFuture,
    ) -> AttemptFuture {
        if self.crash.has_happened() {
            return futures::future::pending().boxed();
        }
        let run = RunGuard(self.run_log.begin(topic, lapse));
        async move { self.watch(attempt, run).await }.boxed()
    }

    async fn watch(&self, attempt: AttemptFuture, run: RunGuard) -> Result<Outcome, Failure> {
        let ended = tokio::select! {
            biased;
            () = self.crash.happens() => None,
            ended = AssertUnwindSafe(attempt).catch_unwind() => Some(ended),
        };
        let Some(ended) = ended else {
            run.0.end(RunEnd::Crashed);
            return futures::future::pending().await; // a crashed process returns nothing
        };
        run.0.end(match &ended {
            Ok(Ok(outcome)) => RunEnd::Returned(*outcome),
            Ok(Err(failure)) => RunEnd::Failed(failure.message().to_owned()),
            Err(panic) => RunEnd::Panicked(panic_message(&**panic).to_owned()),
        });
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// Records an attempt that is dropped before its end as stopped.
struct RunGuard(OpenRun);

impl Drop for RunGuard {
    fn drop(&mut self) {
        self.0.end(RunEnd::Stopped);
    }
}

/// The signal that ends the handlers of a crashed listener.
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
