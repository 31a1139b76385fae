//! The wake-up of a claimer: what others know of its partition, left for it.

use std::sync::Mutex;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::lock::lock;
use crate::source::LapseSource;

/// What a claimer is woken by. Cleared *before* a claim is sent, so that nothing
/// that arrives meanwhile is lost.
#[derive(Debug, Default)]
pub(crate) struct Wakeup {
    pending: Mutex<Pending>,
    woken: Notify,
}

/// What is known since the last look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pending {
    /// The head may be this early, in ms.
    pub(crate) head: Option<u64>,
    /// What is due from this ms on is left to others by whoever leads, or led.
    pub(crate) left: Option<u64>,
    /// Look, not before this.
    pub(crate) look: Option<(Instant, LapseSource)>,
}

impl Wakeup {
    /// Something is due at this ms.
    pub(crate) fn head(&self, ms: u64) {
        let mut pending = lock(&self.pending);
        pending.head = Some(pending.head.map_or(ms, |head| head.min(ms)));
        self.woken.notify_one();
    }

    /// What is due from this ms on is left to others by whoever leads, or led.
    pub(crate) fn left(&self, ms: u64) {
        let mut pending = lock(&self.pending);
        pending.left = Some(pending.left.map_or(ms, |left| left.min(ms)));
        self.woken.notify_one();
    }

    /// Look, at this moment or earlier. A sweep outdoes a notification, which is not for everybody.
    pub(crate) fn look(&self, at: Instant, source: LapseSource) {
        let mut pending = lock(&self.pending);
        let outdoes = |reason| reason == LapseSource::Notification && source == LapseSource::Sweep;
        if pending.look.is_none_or(|(planned, reason)| at < planned || outdoes(reason)) {
            pending.look = Some((at, source));
            self.woken.notify_one();
        }
    }

    pub(crate) fn take(&self) -> Pending {
        std::mem::take(&mut *lock(&self.pending))
    }

    pub(crate) async fn woken(&self) {
        self.woken.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_earliest_head_and_the_earliest_look_are_kept_until_they_are_taken() {
        let (wakeup, now) = (Wakeup::default(), Instant::now());
        let at = |ms| now + Duration::from_millis(ms);
        [7, 5, 6].into_iter().for_each(|ms| wakeup.head(ms));
        wakeup.look(at(7), LapseSource::Sweep);
        wakeup.look(at(5), LapseSource::Timer);
        wakeup.look(at(5), LapseSource::Sweep); // the first reason stays
        wakeup.look(at(6), LapseSource::Sweep);
        wakeup.woken().await;
        let pending = wakeup.take();
        assert_eq!((pending.head, pending.look), (Some(5), Some((at(5), LapseSource::Timer))));
        wakeup.look(at(5), LapseSource::Notification);
        wakeup.look(at(6), LapseSource::Sweep); // a notification is not for everybody
        assert_eq!(wakeup.take().look, Some((at(6), LapseSource::Sweep)));
        let nothing = wakeup.take();
        assert_eq!((nothing.head, nothing.look), (None, None));
    }
}
