//! What the roles of a listener know of its stream: whether it is anchored, and for how long it is not.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use crate::runtime::event_mode::EventMode;

/// Others, who hear, have so long to look at a key before one who does not hear does.
const PATIENCE: Duration = Duration::from_millis(100);

/// Shared by the reader, who writes it, and watchers and scanners.
#[derive(Debug)]
pub(crate) struct StreamState {
    anchored: AtomicBool,
    mode: AtomicU8,
    /// How often something may have been missed.
    gaps: AtomicU64,
    changed: Notify,
}

impl Default for StreamState {
    fn default() -> Self {
        Self {
            anchored: AtomicBool::new(false),
            mode: AtomicU8::new(EventMode::Starting as u8),
            gaps: AtomicU64::new(0),
            changed: Notify::new(),
        }
    }
}

impl StreamState {
    pub(crate) fn set_anchored(&self, anchored: bool) {
        if self.anchored.swap(anchored, Ordering::AcqRel) == anchored {
            return;
        }
        self.changed.notify_waiters();
    }

    /// Something may have been missed, and that is over.
    pub(crate) fn gap(&self) {
        self.gaps.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_waiters();
    }

    pub(crate) fn set_mode(&self, mode: EventMode) {
        if self.mode.swap(mode as u8, Ordering::AcqRel) != mode as u8 {
            mode.announce();
            self.changed.notify_waiters();
        }
    }

    pub(crate) fn mode(&self) -> EventMode {
        EventMode::from_u8(self.mode.load(Ordering::Acquire))
    }

    pub(crate) fn is_anchored(&self) -> bool {
        self.anchored.load(Ordering::Acquire)
    }

    /// Changes whenever something may have been missed, and is over.
    pub(crate) fn gaps(&self) -> u64 {
        self.gaps.load(Ordering::Acquire)
    }

    /// How long a look must have been due before it is taken: no time for whoever hears, and none is
    /// taken in a gap.
    pub(crate) fn patience(&self) -> Option<Duration> {
        match (self.is_anchored(), self.mode()) {
            (true, _) => Some(Duration::ZERO),
            (false, EventMode::Blind) => Some(PATIENCE),
            (false, _) => None,
        }
    }

    /// Returns once this holds, or the moment has come.
    pub(crate) async fn until(&self, over: Instant, holds: impl Fn(&Self) -> bool) {
        loop {
            let changed = self.changed();
            if holds(self) || Instant::now() >= over {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep_until(over) => {}
                () = changed => {}
            }
        }
    }

    /// Completes when any of this is different from when it was called.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }
}
