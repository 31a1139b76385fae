//! Timers of loops that poll, with support for virtual time.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Waits until `due`, or forever if it is `None`.
pub(crate) async fn until_due(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// A virtual clock: tokio's time, which a test pauses and advances, with a count of activity.
///
/// A listener in virtual time has no threads and no clocks of its own. While nothing happens, it skips polls, which
/// would return the same result again. The next poll runs when a regular one would.
pub trait VirtualTime: fmt::Debug + Send + Sync {
    /// Returns the count of activity so far.
    fn activity_so_far(&self) -> u64;

    /// Waits until the count of activity is higher than `than`.
    fn wait_for_activity(&self, than: u64) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// Decides when a loop polls again. In virtual time, of which a test may let days pass, it skips polls while nothing
/// happens.
#[derive(Clone, Debug, Default)]
pub(crate) struct PollTimer {
    /// True if few requests matter more than early detection.
    pub(crate) are_few: bool,
    pub(crate) time: Option<Arc<dyn VirtualTime>>,
    /// The count of activity when the last poll started.
    pub(crate) seen: Option<u64>,
}

impl PollTimer {
    /// Returns the pause between two polls: `few` if requests are to be few, else `usual`.
    pub(crate) fn pace(&self, usual: Duration, few: Duration) -> Duration {
        if self.are_few { few } else { usual }
    }

    /// Returns a random part of `wait`, at least `at_least` of it, so that listeners do not poll at the same time. In
    /// virtual time it returns all of `wait`, so that tests are deterministic.
    pub(crate) fn about(&self, wait: Duration, at_least: f64) -> Duration {
        if self.time.is_some() { wait } else { wait.mul_f64(rand::random_range(at_least..1.0)) }
    }

    /// Starts a poll. Later activity causes the next one.
    pub(crate) fn begin(&mut self) {
        self.seen = self.time.as_ref().map(|time| time.activity_so_far());
    }

    /// Waits for the next poll, which is due at `due`. Cancel safe.
    pub(crate) async fn next(&self, due: Instant, every: Duration) {
        sleep_until(due).await;
        if let (Some(time), Some(seen)) = (&self.time, self.seen) {
            time.wait_for_activity(seen).await;
            // The next multiple of `every` after `due`.
            let rounds = due.elapsed().as_nanos().div_ceil(every.as_nanos().max(1));
            sleep_until(due + every * u32::try_from(rounds).unwrap_or(u32::MAX)).await;
        }
    }
}
