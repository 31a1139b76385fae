//! What others know of a partition, left for its claimer.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::lapse::Source;

/// News for a claimer. Cleared *before* a claim is sent, so that nothing that
/// arrives meanwhile is lost.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    news: Mutex<News>,
    rung: Notify,
}

/// What is known since the last look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct News {
    /// The head may be this early, in ms.
    pub(crate) head: Option<u64>,
    /// Look, not before this.
    pub(crate) look: Option<(Instant, Source)>,
}

impl Alarm {
    /// Something is due at this ms.
    pub(crate) fn head(&self, ms: u64) {
        let mut news = self.lock();
        news.head = Some(news.head.map_or(ms, |head| head.min(ms)));
        self.rung.notify_one();
    }

    /// Look, at this moment or earlier.
    pub(crate) fn look(&self, at: Instant, source: Source) {
        let mut news = self.lock();
        if news.look.is_none_or(|(planned, _)| at < planned) {
            news.look = Some((at, source));
            self.rung.notify_one();
        }
    }

    pub(crate) fn take(&self) -> News {
        std::mem::take(&mut *self.lock())
    }

    pub(crate) async fn rung(&self) {
        self.rung.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_earliest_head_and_the_earliest_look_are_kept_until_they_are_taken() {
        let (alarm, now) = (Alarm::default(), Instant::now());
        let at = |ms| now + Duration::from_millis(ms);
        [7, 5, 6].into_iter().for_each(|ms| alarm.head(ms));
        alarm.look(at(7), Source::Sweep);
        alarm.look(at(5), Source::Notification);
        alarm.look(at(5), Source::Sweep); // the first reason stays
        alarm.look(at(6), Source::Sweep);
        alarm.rung().await;
        let news = alarm.take();
        assert_eq!((news.head, news.look), (Some(5), Some((at(5), Source::Notification))));
        let nothing = alarm.take();
        assert_eq!((nothing.head, nothing.look), (None, None));
    }
}
