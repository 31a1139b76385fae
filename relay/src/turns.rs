//! Those who are refused come back in turn, so that many of them cost as little as some.

use std::time::Duration;

use tokio::time::Instant;

/// Between two who come back: 1,000 a second are asked about one host or list, however many wait for it.
const APART: Duration = Duration::from_millis(1);

/// A queue that holds nobody: each is told when to come back, behind the one before.
#[derive(Debug)]
pub(crate) struct Turns {
    next: Instant,
}

impl Turns {
    pub(crate) fn new() -> Self {
        Self { next: Instant::now() }
    }

    /// How long the next one waits, which is as long as this at the least.
    pub(crate) fn take(&mut self, least: Duration) -> Duration {
        let now = Instant::now();
        let turn = self.next.max(now + least);
        self.next = turn + APART;
        turn - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_millis(100);

    #[tokio::test(start_paused = true)]
    async fn they_come_back_one_behind_the_other() {
        let mut turns = Turns::new();
        for at in 0..5000 {
            assert_eq!(turns.take(LEAST), LEAST + APART * at);
        }
        // Whoever comes behind all of them waits no longer than anybody.
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(turns.take(LEAST), LEAST);
        assert_eq!(turns.take(Duration::ZERO), LEAST + APART, "nobody overtakes");
    }
}
