//! Subscribers of single tests.

use std::sync::OnceLock;

use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Dispatch, Subscriber};

/// A subscriber of the process that no thread has as its default.
static SECOND: OnceLock<Dispatch> = OnceLock::new();

/// Makes a subscriber the default of this thread, until the guard is dropped.
pub fn subscribe(subscriber: impl Subscriber + Send + Sync + 'static) -> DefaultGuard {
    // While a process has a single subscriber, tracing-core 0.1 (`Rebuilder::JustOne`) asks only the default of the
    // thread that reaches a callsite first, and keeps that answer for all threads: tests beside this one would decide.
    SECOND.get_or_init(|| Dispatch::new(NoSubscriber::default()));
    #[expect(clippy::disallowed_methods, reason = "the second one is there")]
    tracing::subscriber::set_default(subscriber)
}
