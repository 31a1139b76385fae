//! What the roles of a listener know of its stream: whether it is anchored, and for how long it is not.

use std::mem;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::runtime::event_mode::EventMode;

/// Others, who hear, have so long to look at a key before one who does not hear does.
const PATIENCE: Duration = Duration::from_millis(100);

/// Shared by the reader, who writes it, and watchers and scanners.
#[derive(Debug, Default)]
pub(crate) struct StreamState(watch::Sender<Known>);

/// What is known at a moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    pub(crate) anchored: bool,
    pub(crate) mode: EventMode,
    /// How often something may have been missed, and that was over.
    pub(crate) gaps: u64,
}

impl StreamState {
    pub(crate) fn set_anchored(&self, anchored: bool) {
        self.0.send_if_modified(|known| mem::replace(&mut known.anchored, anchored) != anchored);
    }

    /// Something may have been missed, and that is over.
    pub(crate) fn gap(&self) {
        self.0.send_modify(|known| known.gaps += 1);
    }

    pub(crate) fn set_mode(&self, mode: EventMode) {
        if self.0.send_if_modified(|known| mem::replace(&mut known.mode, mode) != mode) {
            mode.announce();
        }
    }

    pub(crate) fn known(&self) -> Known {
        *self.0.borrow()
    }

    pub(crate) fn mode(&self) -> EventMode {
        self.known().mode
    }

    /// How long a look must have been due before it is taken: no time for whoever hears, and none is
    /// taken in a gap.
    pub(crate) fn patience(&self) -> Option<Duration> {
        match self.known() {
            Known { anchored: true, .. } => Some(Duration::ZERO),
            Known { mode: EventMode::Blind, .. } => Some(PATIENCE),
            Known { .. } => None,
        }
    }

    /// Returns once this holds, or the moment has come.
    pub(crate) async fn until(&self, over: Instant, holds: impl FnMut(&Known) -> bool) {
        let _ = tokio::time::timeout_at(over, self.0.subscribe().wait_for(holds)).await;
    }

    /// Completes when any of this is different from when it was called.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> + use<> {
        let mut seen = self.0.subscribe();
        async move {
            let _ = seen.changed().await;
        }
    }
}
