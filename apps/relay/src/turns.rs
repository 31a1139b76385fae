//! Those who are refused come back in turn, so that many of them cost as little as some.

use std::time::Duration;

use tokio::time::Instant;

/// Between two who come back: 1,000 a second are asked about one host or list, however many wait for it.
const APART: Duration = Duration::from_millis(1);
/// The same where it has been found that places become free slowly: to ask more often would only keep others from theirs, ...
const FAR_APART: Duration = Duration::from_millis(100);
/// ... but nobody waits much longer than this for one that has become quick.
const LONG: Duration = Duration::from_secs(60);
/// Where nobody has been refused for so long, nobody needs to wait behind others: they have been served, or withdrawn.
const QUIET: Duration = Duration::from_secs(1);

/// A queue that holds nobody: each is told when to come back, behind the one before.
#[derive(Debug)]
pub(crate) struct Turns {
    next: Instant,
    last_refused: Instant,
}

impl Turns {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self { next: now, last_refused: now }
    }

    /// How long one who is refused waits, which is as long as this at the least.
    pub(crate) fn take(&mut self, least: Duration) -> Duration {
        self.take_at(least, APART)
    }

    /// The same, of something that serves one in so long.
    pub(crate) fn take_at(&mut self, least: Duration, pace: Duration) -> Duration {
        let now = Instant::now();
        if now - self.last_refused > QUIET {
            self.next = now;
        }
        self.last_refused = now;
        let turn = self.next.max(now + least);
        let apart = if turn - now < LONG { pace.clamp(APART, FAR_APART) } else { APART };
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
        let mut turns = Turns::new();
        for at in 0..5000 {
            assert_eq!(turns.take(LEAST), LEAST + APART * at);
        }
        assert_eq!(turns.take(Duration::ZERO), LEAST + APART * 5000, "nobody overtakes");
        // It comes back, is refused again, and is the last again.
        advance(LEAST).await;
        assert_eq!(turns.take(LEAST), APART * 5001);
    }

    #[tokio::test(start_paused = true)]
    async fn they_ask_as_often_as_some_are_served_and_once_in_a_minute_or_so() {
        let mut turns = Turns::new();
        for at in 0..10 {
            assert_eq!(turns.take_at(LEAST, APART * 7), LEAST + APART * 7 * at);
        }
        let mut turns = Turns::new();
        let waits: Vec<_> = (0..10_000).map(|_| turns.take_at(LEAST, Duration::from_secs(9))).collect();
        assert!(waits.is_sorted(), "nobody overtakes");
        assert_eq!(waits[100], LEAST + FAR_APART * 100);
        assert!(waits[9999] < LONG + APART * 10_000, "{:?}", waits[9999]);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_behind_those_who_are_gone() {
        let mut turns = Turns::new();
        for _ in 0..60_000 {
            turns.take(LEAST);
        }
        advance(QUIET + APART).await;
        assert_eq!(turns.take(LEAST), LEAST);
    }
}
