//! How fast a bulk goes, and how far.

use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::{Instant, sleep_until};

/// No faster than was asked for, and no further once it is to stop.
pub(super) struct Pace<'a> {
    each: Option<Duration>,
    next: Instant,
    /// Entries between two waits.
    pub(super) chunk: usize,
    stop: BoxFuture<'a, ()>,
}

impl<'a> Pace<'a> {
    /// With steps of at most so many entries.
    pub(super) fn new(rate: Option<u32>, most: usize, stop: BoxFuture<'a, ()>) -> Self {
        // Ten steps a second, where the rate is above that.
        let chunk = rate.map_or(most, |rate| (rate as usize / 10).clamp(1, most));
        let each = rate.map(|rate| Duration::from_secs(1) / rate);
        Self { each, next: Instant::now(), chunk, stop }
    }

    /// Waits until so many are in turn; false where it is to stop before.
    pub(super) async fn goes_on(&mut self, entries: usize) -> bool {
        let turn = async {
            if self.each.is_some() {
                sleep_until(self.next).await;
            }
        };
        tokio::select! {
            biased;
            () = &mut self.stop => return false,
            () = turn => {}
        }
        let each = self.each.unwrap_or_default();
        self.next = self.next.max(Instant::now()) + each * u32::try_from(entries).unwrap_or(u32::MAX);
        true
    }
}
