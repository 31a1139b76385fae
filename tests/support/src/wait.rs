//! Waits for conditions, never for a fixed time.

use std::{
    panic::Location,
    time::{Duration, Instant},
};

use tokio::time::{sleep, timeout};

const PAUSE: Duration = Duration::from_millis(2);

/// The end of a time limit.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    started: Instant,
    limit: Duration,
}

impl Deadline {
    /// Returns the deadline at this time from now.
    pub fn after(limit: Duration) -> Self {
        Self { started: Instant::now(), limit }
    }

    /// Returns whether the deadline has passed.
    pub fn is_over(&self) -> bool {
        self.remaining().is_zero()
    }

    /// Returns the time until the deadline, or zero after it.
    pub fn remaining(&self) -> Duration {
        self.limit.saturating_sub(self.started.elapsed())
    }
}

/// Polls `condition` until it is true. Panics with the caller's line if this takes longer than `limit`.
///
/// `what` completes the sentence "waited for …":
///
/// ```no_run
/// # use std::time::Duration;
/// # use keylapse_support::{Server, eventually};
/// # async fn example(server: Server) {
/// eventually(Duration::from_secs(5), "the key to expire", async || {
///     server.cmd(&["EXISTS", "key"]).await == redis::Value::Int(0)
/// })
/// .await;
/// # }
/// ```
#[track_caller]
pub fn eventually(
    limit: Duration,
    what: &str,
    mut condition: impl AsyncFnMut() -> bool,
) -> impl Future<Output = ()> {
    // `#[track_caller]` does not work on async functions.
    let caller = Location::caller();
    async move {
        let deadline = Deadline::after(limit);
        let mut tries = 0_u32;
        // The time limit also ends a condition that never returns.
        while !matches!(timeout(deadline.remaining(), condition()).await, Ok(true)) {
            tries += 1;
            assert!(!deadline.is_over(), "waited {limit:?} for {what} in vain ({tries} tries), at {caller}");
            sleep(PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn returns_as_soon_as_the_condition_holds() {
        let mut tries = 0;
        eventually(Duration::from_secs(10), "three tries", async || {
            tries += 1;
            tries == 3
        })
        .await;
        assert_eq!(tries, 3);
    }

    #[tokio::test]
    #[should_panic(expected = "waited 10ms for the impossible in vain")]
    async fn says_what_it_waited_for() {
        eventually(Duration::from_millis(10), "the impossible", async || false).await;
    }

    #[tokio::test]
    #[should_panic(expected = "waited 10ms for an answer in vain")]
    async fn does_not_hang_with_its_condition() {
        eventually(Duration::from_millis(10), "an answer", std::future::pending).await;
    }
}
