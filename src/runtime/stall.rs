//! A runtime of handlers that polls nothing.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Since when it has polled nothing, if it does not.
#[derive(Debug, Default)]
pub(crate) struct Stall(watch::Sender<Option<Instant>>);

impl Stall {
    /// It polls nothing; whether that is news.
    pub(crate) fn begin(&self, since: Instant) -> bool {
        self.0.send_if_modified(|stalled| stalled.replace(since.min(stalled.unwrap_or(since))).is_none())
    }

    /// It polls again. Returns for how long it did not.
    pub(crate) fn end(&self) -> Option<Duration> {
        self.0.send_replace(None).map(|since| since.elapsed())
    }

    /// For how long it has polled nothing.
    pub(crate) fn lasts(&self) -> Option<Duration> {
        self.0.borrow().map(|since| since.elapsed())
    }

    /// Returns once it polls.
    pub(crate) async fn is_over(&self) {
        // The sender is `self`, so that it cannot be gone.
        let _ = self.0.subscribe().wait_for(Option::is_none).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stall_is_news_once_and_lasts_until_it_ends() {
        let stall = Stall::default();
        stall.is_over().await;
        let began = Instant::now();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(stall.begin(began) && !stall.begin(Instant::now()));
        assert_eq!(stall.lasts(), Some(Duration::from_secs(1)));
        let waits = stall.is_over();
        tokio::pin!(waits);
        assert!(futures::poll!(waits.as_mut()).is_pending());
        assert_eq!(stall.end(), Some(Duration::from_secs(1)));
        waits.await;
        assert_eq!((stall.lasts(), stall.end()), (None, None));
    }
}
