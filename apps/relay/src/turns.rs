//! Paces the retries of refused timers, so that many of them cost as little as a few.

use std::time::Duration;

use tokio::time::Instant;

/// The shortest time between two retries: 1,000 a second for one host or list, however many timers wait for it.
const APART: Duration = Duration::from_millis(1);
/// The longest time between two retries, where capacity becomes free slowly. More retries would only delay other timers.
const FAR_APART: Duration = Duration::from_millis(100);
/// Retries that are further ahead than this have the shortest time between them. So no timer waits much longer for a host
/// that is quick again.
const MAX_PACED_DELAY: Duration = Duration::from_secs(60);
/// After this long without a refusal no timer waits behind others: these were served or withdrawn.
const QUIET: Duration = Duration::from_secs(1);

/// Assigns each refused timer the time of its retry, one after the other. It stores no timers.
#[derive(Debug)]
pub(crate) struct RetryPacer {
    next: Instant,
    last_refused: Instant,
}

impl RetryPacer {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self { next: now, last_refused: now }
    }

    /// Returns how long a refused timer waits, which is at least `least`.
    pub(crate) fn take(&mut self, least: Duration) -> Duration {
        self.take_at(least, APART)
    }

    /// Returns how long a refused timer waits, where one timer is served in each `pace`.
    pub(crate) fn take_at(&mut self, least: Duration, pace: Duration) -> Duration {
        let now = Instant::now();
        if now - self.last_refused > QUIET {
            self.next = now;
        }
        self.last_refused = now;
        let turn = self.next.max(now + least);
        let apart = if turn - now < MAX_PACED_DELAY { pace.clamp(APART, FAR_APART) } else { APART };
        self.next = turn + apart;
        turn - now
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const LEAST: Duration = Duration::from_millis(100);

    #[tokio::test(start_paused = true)]
    async fn they_come_back_one_behind_the_other() {
        let mut turns = RetryPacer::new();
        for at in 0..5000 {
            assert_eq!(turns.take(LEAST), LEAST + APART * at);
        }
        assert_eq!(turns.take(Duration::ZERO), LEAST + APART * 5000, "no timer overtakes another");
        // The first timer retries, is refused again, and becomes the last.
        advance(LEAST).await;
        assert_eq!(turns.take(LEAST), APART * 5001);
    }

    #[tokio::test(start_paused = true)]
    async fn they_ask_as_often_as_some_are_served_and_once_in_a_minute_or_so() {
        let mut turns = RetryPacer::new();
        for at in 0..10 {
            assert_eq!(turns.take_at(LEAST, APART * 7), LEAST + APART * 7 * at);
        }
        let mut turns = RetryPacer::new();
        let waits: Vec<_> = (0..10_000).map(|_| turns.take_at(LEAST, Duration::from_secs(9))).collect();
        assert!(waits.is_sorted(), "no timer overtakes another");
        assert_eq!(waits[100], LEAST + FAR_APART * 100);
        assert!(waits[9999] < MAX_PACED_DELAY + APART * 10_000, "{:?}", waits[9999]);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_behind_those_who_are_gone() {
        let mut turns = RetryPacer::new();
        for _ in 0..60_000 {
            turns.take(LEAST);
        }
        advance(QUIET + APART).await;
        assert_eq!(turns.take(LEAST), LEAST);
    }
}
