//! Those who are refused come back in turn, so that many of them cost as little as some.

use std::time::Duration;

use tokio::time::Instant;

/// Between two who come back: 1,000 a second are asked about one host or list, however many wait for it.
const APART: Duration = Duration::from_millis(1);
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
        let now = Instant::now();
        if now - self.last_refused > QUIET {
            self.next = now;
        }
        self.last_refused = now;
        let turn = self.next.max(now + least);
        self.next = turn + APART;
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
    async fn nobody_waits_behind_those_who_are_gone() {
        let mut turns = Turns::new();
        for _ in 0..60_000 {
            turns.take(LEAST);
        }
        advance(QUIET + APART).await;
        assert_eq!(turns.take(LEAST), LEAST);
    }
}
