//! Time, as tokio's clock tells it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// A wall clock that runs with tokio's, paused or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TestClock {
    start: Duration,
    origin: Instant,
}

impl TestClock {
    pub(crate) fn starting_at(start: SystemTime) -> Self {
        Self { start: start.duration_since(UNIX_EPOCH).unwrap_or_default(), origin: Instant::now() }
    }

    /// Since 1970.
    fn since_epoch(self) -> Duration {
        self.start + self.origin.elapsed()
    }

    pub(crate) fn now(self) -> SystemTime {
        UNIX_EPOCH + self.since_epoch()
    }

    pub(crate) fn micros(self) -> u64 {
        u64::try_from(self.since_epoch().as_micros()).unwrap_or(u64::MAX)
    }

    /// When it will be so many µs since 1970, if that is not too far away to be waited for.
    pub(crate) fn instant(self, micros: u64) -> Option<Instant> {
        self.origin.checked_add(Duration::from_micros(micros).saturating_sub(self.start))
    }
}
