//! Where connections live: on the runtime that opens them, or on one of keylapse's own.
//!
//! A connection is read by a task. Were that one of a program's runtimes, all other callers would wait while that runtime
//! is blocked, or driven by nobody.

use std::sync::LazyLock;

use tokio::runtime::{Builder, Runtime};

/// Which runtime opens connections and reads them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Home {
    /// The one on which a connection is first needed: a listener has a thread of its own, and tests have a clock.
    #[default]
    Opener,
    /// One thread for all connections of this process that no listener has.
    OwnThread,
}

/// None where the system has no thread for it.
static OWN: LazyLock<Option<Runtime>> = LazyLock::new(|| {
    Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("keylapse-connections")
        .enable_all()
        .build()
        .ok()
});

impl Home {
    /// Does this work there, to its end, also when nobody waits for it.
    pub async fn run<T: Send + 'static>(self, work: impl Future<Output = T> + Send + 'static) -> T {
        let Some(own) = self.own() else { return work.await };
        match own.spawn(work).await {
            Ok(done) => done,
            // The runtime is never shut down, and no handle to its tasks is kept, so that it has panicked.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    /// Starts a task there.
    pub fn spawn(self, task: impl Future<Output = ()> + Send + 'static) {
        match self.own() {
            Some(own) => own.spawn(task),
            None => tokio::spawn(task),
        };
    }

    fn own(self) -> Option<&'static Runtime> {
        (self == Self::OwnThread).then_some(OWN.as_ref()).flatten()
    }
}
