//! The time that a store in memory takes for the server's.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::time::ServerTime;

/// The clock of a [`MemoryStore`](super::MemoryStore), in microseconds. Clones
/// show the same time.
#[derive(Clone)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    /// Tokio's clock, which tests may pause, and what it showed at the start.
    Tokio {
        base: ServerTime,
        started: Instant,
    },
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// A clock that stands still until it is [advanced](Self::advance).
    ///
    /// Nothing wakes when it moves, so it is for tests that call the store
    /// themselves. A [`Listener`](crate::Listener) sleeps by tokio's clock.
    pub fn manual(start: SystemTime) -> Self {
        Self(Source::Manual(Arc::new(AtomicU64::new(micros(since_1970(start))))))
    }

    /// Tokio's clock, which tests may pause. It shows `start` now.
    pub fn tokio(start: SystemTime) -> Self {
        Self(Source::Tokio { base: ServerTime(micros(since_1970(start))), started: Instant::now() })
    }

    /// Moves a manual clock on, by whole microseconds.
    ///
    /// # Panics
    /// If the clock is not a manual one: tokio's is moved by
    /// `tokio::time::advance`.
    pub fn advance(&self, by: Duration) {
        match &self.0 {
            Source::Manual(now) => {
                now.fetch_add(micros(by), Ordering::Relaxed);
            }
            Source::Tokio { .. } => panic!("this clock is tokio's: move it with tokio::time::advance"),
        }
    }

    /// What it shows.
    pub fn now(&self) -> ServerTime {
        match &self.0 {
            Source::Manual(now) => ServerTime(now.load(Ordering::Relaxed)),
            Source::Tokio { base, started } => ServerTime(base.0 + micros(started.elapsed())),
        }
    }

    pub(super) fn is_tokio(&self) -> bool {
        matches!(self.0, Source::Tokio { .. })
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = if self.is_tokio() { "tokio" } else { "manual" };
        write!(f, "Clock({of}, {} µs)", self.now().0)
    }
}

fn since_1970(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_when_told_to() {
        let clock = Clock::manual(UNIX_EPOCH + Duration::from_millis(5));
        let same = clock.clone();
        clock.advance(Duration::from_micros(7));
        assert_eq!(same.now(), ServerTime(5007));
    }

    #[tokio::test(start_paused = true)]
    async fn tokios_clock_can_be_paused() {
        let clock = Clock::tokio(SystemTime::now());
        let before = clock.now();
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(clock.now().0 - before.0, 3_600_000_000);
    }
}
