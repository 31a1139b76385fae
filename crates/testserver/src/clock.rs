//! The server's clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// A wall clock that advances with tokio's clock, paused or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TestClock {
    start: Duration,
    origin: Instant,
}

impl TestClock {
    pub(crate) fn starting_at(start: SystemTime) -> Self {
        Self { start: start.duration_since(UNIX_EPOCH).unwrap_or_default(), origin: Instant::now() }
    }

    fn since_epoch(self) -> Duration {
        self.start + self.origin.elapsed()
    }

    pub(crate) fn now(self) -> SystemTime {
        UNIX_EPOCH + self.since_epoch()
    }

    pub(crate) fn micros(self) -> u64 {
        u64::try_from(self.since_epoch().as_micros()).unwrap_or(u64::MAX)
    }

    /// Returns the instant at `micros` µs since 1970. `None` if it is too far away for tokio.
    pub(crate) fn instant(self, micros: u64) -> Option<Instant> {
        self.origin.checked_add(Duration::from_micros(micros).saturating_sub(self.start))
    }
}
