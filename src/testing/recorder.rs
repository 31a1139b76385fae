//! A handler that is watched.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures::FutureExt;
use tokio::sync::Notify;

use crate::error::Error;
use crate::handler::{AnyHandler, Attempt};
use crate::lapse::About;
use crate::outcome::{Failure, Outcome};
use crate::panics::panic_message;
use crate::testing::ledger::{Entry, Ledger};
use crate::testing::run::End;

/// Writes down what a handler does, and ends it where its process is to end.
pub(super) struct Recorder {
    pub(super) topic: String,
    pub(super) handler: AnyHandler,
    pub(super) ledger: Ledger,
    pub(super) crash: Arc<Crash>,
}

impl Recorder {
    /// The handler that is watched, in its place.
    pub(super) fn watching(self) -> AnyHandler {
        let recorder = Arc::new(self);
        Arc::new(move |about, payload| recorder.clone().start(&about, payload))
    }

    fn start(self: Arc<Self>, about: &Arc<About>, payload: Bytes) -> Result<Attempt, Error> {
        if self.crash.has_happened() {
            return Ok(futures::future::pending().boxed());
        }
        let attempt = (self.handler)(about.clone(), payload)?;
        let entry = Stopped(self.ledger.begin(&self.topic, about));
        Ok(async move { self.watch(attempt, entry).await }.boxed())
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
            Ok(Err(failure)) => End::Failed(failure.error.clone()),
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
