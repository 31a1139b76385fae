//! Looks that are made over and over, though mostly there is nothing new to see.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Waits until then; for ever, if nothing is due.
pub(crate) async fn until_due(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Time that is tokio's, which a test pauses and advances, and in which it is known whether anything has happened.
///
/// A listener then has no threads and no clocks of its own. As long as nothing happens, it leaves out the looks that would
/// see what they saw before. The next is made when it would have been made.
pub trait VirtualTime: fmt::Debug + Send + Sync {
    /// Returns how much has happened so far.
    fn happened(&self) -> u64;

    /// Returns once more has happened than this.
    fn happens(&self, than: u64) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// When to look again. In production that is always; in virtual time, of which a test lets days pass, the looks
/// are left out that would see what the last one saw.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rounds {
    /// Set where each request counts more than what a look finds sooner.
    pub(crate) are_few: bool,
    pub(crate) time: Option<Arc<dyn VirtualTime>>,
    /// How much had happened when the last look began.
    pub(crate) seen: Option<u64>,
}

impl Rounds {
    /// How long to wait between two looks.
    pub(crate) fn pace(&self, usual: Duration, few: Duration) -> Duration {
        if self.are_few { few } else { usual }
    }

    /// By chance at least this part of it, so that listeners do not act at once; in virtual time all of it, so that a test
    /// does the same each time.
    pub(crate) fn about(&self, wait: Duration, at_least: f64) -> Duration {
        if self.time.is_some() { wait } else { wait.mul_f64(rand::random_range(at_least..1.0)) }
    }

    /// A look begins: what happens from now on is for the next.
    pub(crate) fn begin(&mut self) {
        self.seen = self.time.as_ref().map(|time| time.happened());
    }

    /// Waits for the next look, which is due then. Nothing is lost if this is dropped.
    pub(crate) async fn next(&self, due: Instant, every: Duration) {
        sleep_until(due).await;
        if let (Some(time), Some(seen)) = (&self.time, self.seen) {
            time.happens(seen).await;
            // The next of the moments in this distance.
            let rounds = due.elapsed().as_nanos().div_ceil(every.as_nanos().max(1));
            sleep_until(due + every * u32::try_from(rounds).unwrap_or(u32::MAX)).await;
        }
    }
}
