//! A sign of life, so that tests wait for signals and never sleep and hope.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;
use tokio::task::yield_now;

/// This often in a row everybody had a turn and nothing moved: then nothing
/// will, until time passes. One turn mostly runs all that can run; this many
/// let handlers hand things to and fro among tasks of their own.
const CALM: usize = 50;

/// Beats whenever the server is called, an event is passed on, or an attempt begins
/// or ends.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    beats: AtomicU64,
    beat: Notify,
}

impl Pulse {
    pub(super) fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
        self.beat.notify_waiters();
    }

    /// Returns once `done` answers something. It is asked now and at each beat.
    pub(super) async fn until<T>(&self, mut done: impl FnMut() -> Option<T>) -> T {
        loop {
            // Created before the question: no beat after it is missed.
            let beat = self.beat.notified();
            if let Some(answer) = done() {
                return answer;
            }
            beat.await;
        }
    }

    /// Lets everything run that can run at this moment of a paused clock.
    pub(super) async fn calm(&self) {
        let (mut seen, mut calm) = (self.beats.load(Ordering::Relaxed), 0);
        while calm < CALM {
            yield_now().await;
            let beats = self.beats.load(Ordering::Relaxed);
            calm = if beats == seen { calm + 1 } else { 0 };
            seen = beats;
        }
    }
}
