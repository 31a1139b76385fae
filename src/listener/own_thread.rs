//! The thread on which a listener's roles run, so that no handler holds them up.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::thread;

use futures::FutureExt;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tracing::dispatcher::{Dispatch, set_default};
use tracing::subscriber::NoSubscriber;

use crate::error::{Error, ErrorKind, Result};
use crate::panics::message;

/// Runs this on a thread and a runtime of its own, to its end or until the answer is dropped. Everything that
/// it has spawned there has ended when it is answered.
pub(super) async fn on_own_thread<F>(
    subscriber: Dispatch,
    work: impl FnOnce() -> F + Send + 'static,
) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let (alive, abandoned) = oneshot::channel::<Infallible>();
    let (answer, answered) = oneshot::channel();
    let work = move || {
        // One that is set for all threads, perhaps later, needs no help.
        let _subscriber = (!subscriber.is::<NoSubscriber>()).then(|| set_default(&subscriber));
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(|error| no_thread(&error))?;
        let ended = runtime.block_on(async {
            tokio::select! {
                biased;
                _ = abandoned => Ok(Ok(())), // nobody hears it
                ended = AssertUnwindSafe(async { work().await }).catch_unwind() => ended,
            }
        });
        drop(runtime);
        ended.unwrap_or_else(|panic| Err(panicked(&message(panic))))
    };
    let thread = thread::Builder::new().name("keylapse".into());
    thread.spawn(move || drop(answer.send(work()))).map_err(|error| no_thread(&error))?;
    let ended = answered.await;
    drop(alive);
    ended.unwrap_or_else(|_| Err(panicked("without a word")))
}

/// One of the listener's threads cannot be had.
pub(super) fn no_thread(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Internal, format!("cannot start a thread of the listener: {error}"))
}

/// What becomes of a panic in a part of the listener.
pub(super) fn panicked(message: &str) -> Error {
    Error::new(
        ErrorKind::Internal,
        format!("a part of the listener has panicked, so it has stopped: {message}"),
    )
}
