//! Sets a `tracing` subscriber for a single test.

use std::sync::OnceLock;

use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Dispatch, Subscriber};

/// A second subscriber of the process. No thread has it as the default.
static SECOND: OnceLock<Dispatch> = OnceLock::new();

/// Makes a subscriber the default of this thread, until the guard is dropped.
pub fn subscribe(subscriber: impl Subscriber + Send + Sync + 'static) -> DefaultGuard {
    // While a process has a single subscriber, tracing-core 0.1 (`Rebuilder::JustOne`) asks only the default of the
    // thread that reaches a callsite first, and keeps that answer for all threads. A parallel test would then decide.
    SECOND.get_or_init(|| Dispatch::new(NoSubscriber::default()));
    #[expect(clippy::disallowed_methods, reason = "the process has a second subscriber")]
    tracing::subscriber::set_default(subscriber)
}
