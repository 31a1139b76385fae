//! Room for what was asked for and is not written yet: values above all. One for each listener.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::policy::Capture;
use crate::runtime::{Amount, Gauge};

/// So many bytes are read ahead of what is written.
const BYTES: usize = 8 << 20;
/// The least that is taken.
const UNIT: usize = 1 << 10;
/// What a key takes beside itself and its value, about.
const EACH: usize = 128;
/// Whoever asks the reader takes some before.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    free: Arc<Semaphore>,
    taken: Gauge,
}

/// Some of it, until the last who has it is done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken(
    #[expect(dead_code, reason = "it is there to be dropped")] Option<Arc<(OwnedSemaphorePermit, Amount)>>,
);

impl Room {
    pub(crate) fn new(taken: Gauge) -> Self {
        Self { free: Arc::new(Semaphore::new(BYTES / UNIT)), taken }
    }

    /// Waits until there is room for so many keys of so many bytes together, and what is read of them.
    pub(crate) async fn take(&self, keys: usize, bytes: usize, capture: &Capture) -> Taken {
        let all = bytes + keys * (EACH + capture.cap);
        let units = u32::try_from(all.min(BYTES).div_ceil(UNIT)).unwrap_or(u32::MAX);
        let taken = self.taken.add(all);
        // It is never closed.
        Taken(self.free.clone().acquire_many_owned(units).await.ok().map(|free| Arc::new((free, taken))))
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn what_is_read_ahead_is_bounded_in_bytes() {
        let gauge = Gauge::default();
        let (room, large) = (Room::new(gauge.clone()), Capture { cap: 1 << 20, ..Capture::default() });
        let mut taken: Vec<_> = (0..7).map(|_| room.take(1, 100, &large).now_or_never().unwrap()).collect();
        assert!(room.take(1, 100, &large).now_or_never().is_none(), "eight values and their keys do not fit");
        let shared = taken.pop();
        let both = shared.clone();
        drop(shared);
        assert!(room.take(1, 100, &large).now_or_never().is_none(), "somebody still has it");
        drop(both);
        assert!(room.take(1, 100, &large).now_or_never().is_some());
        assert_eq!(gauge.get(), 6 * (100 + EACH + (1 << 20)));
        drop(taken);
        assert_eq!(gauge.get(), 0);
        let largest = Capture { cap: 8 << 20, ..Capture::default() };
        assert!(room.take(1, 4096, &largest).now_or_never().is_some(), "one always fits");
    }
}
