//! Looks that are made over and over, though mostly there is nothing new to see.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Waits until then; for ever, if nothing is due.
pub(crate) async fn until_due(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// When to look again. In production that is always; in virtual time, of which a test lets days pass, the looks
/// are left out that would see what the last one saw: see [`News`](crate::testing::News).
#[derive(Clone, Debug, Default)]
pub(crate) struct Rounds {
    /// Set where each request counts more than what a look finds sooner.
    pub(crate) are_few: bool,
    #[cfg(feature = "testing")]
    pub(crate) news: Option<crate::testing::News>,
}

impl Rounds {
    /// How long to wait between two looks.
    pub(crate) fn pace(&self, usual: Duration, few: Duration) -> Duration {
        if self.are_few { few } else { usual }
    }

    /// By chance at least this part of it, so that listeners do not act at once; in virtual time all of it, so that a test
    /// does the same each time.
    pub(crate) fn about(&self, wait: Duration, at_least: f64) -> Duration {
        #[cfg(feature = "testing")]
        if self.news.is_some() {
            return wait;
        }
        wait.mul_f64(rand::random_range(at_least..1.0))
    }

    /// A look begins: what happens from now on is for the next.
    pub(crate) fn begin(&mut self) {
        #[cfg(feature = "testing")]
        self.news.iter_mut().for_each(crate::testing::News::read);
    }

    /// Waits for the next look, which is due then. Nothing is lost if this is dropped.
    pub(crate) async fn next(&self, due: Instant, every: Duration) {
        sleep_until(due).await;
        #[cfg(feature = "testing")]
        if let Some(news) = &self.news {
            news.wait(due, every).await;
        }
        #[cfg(not(feature = "testing"))]
        let _ = every;
    }
}
