//! A handler that is watched.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use tokio::sync::Notify;

use crate::ledger::{Entry, Ledger};
use crate::run::End;
use keylapse::Lapse;
use keylapse::inside::Attempt;
use keylapse::{Failure, Outcome};
use keylapse_connection::panics::panic_message;

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
