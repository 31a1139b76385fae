//! A listener that runs in the background of a test.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinHandle};

use crate::recorder::Crash;
use keylapse::Listener;
use keylapse::stats::Stats;
use keylapse::{Error, ErrorKind, Result};

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
