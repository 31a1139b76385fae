//! A sign of life, so that tests wait for signals and never sleep and hope.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::sleep;

use keylapse::inside::VirtualTime;

/// This often in a row everybody had a turn and nothing moved: then nothing
/// will, until time passes. One turn mostly runs all that can run; this many
/// let handlers hand things to and fro among tasks of their own.
const IDLE_TURNS: usize = 50;
/// A condition may depend on what does not beat.
const RECHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Beats whenever the server is called, an event is passed on, or an attempt begins
/// or ends.
#[derive(Debug, Default)]
pub(super) struct ActivitySignal {
    beats: AtomicU64,
    beat: Notify,
    news: AtomicU64,
    fresh: Notify,
}

impl ActivitySignal {
    /// Something has happened.
    pub(super) fn record_activity(&self) {
        self.news.fetch_add(1, Ordering::Relaxed);
        self.fresh.notify_waiters();
        self.record_poll();
    }

    /// Somebody looked whether anything has happened.
    pub(super) fn record_poll(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
        self.beat.notify_waiters();
    }

    /// Returns once `done` answers something. It is asked now, at each beat, and now and then.
    pub(super) async fn wait_for<T>(&self, mut done: impl FnMut() -> Option<T>) -> T {
        loop {
            // Created before the question: no beat after it is missed.
            let beat = self.beat.notified();
            if let Some(answer) = done() {
                return answer;
            }
            tokio::select! {
                () = beat => {}
                () = sleep(RECHECK_INTERVAL) => {}
            }
        }
    }

    /// Lets everything run that can run at this moment of a paused clock.
    pub(super) async fn run_until_idle(&self) {
        let (mut seen, mut calm) = (self.beats.load(Ordering::Relaxed), 0);
        while calm < IDLE_TURNS {
            yield_now().await;
            let beats = self.beats.load(Ordering::Relaxed);
            calm = if beats == seen { calm + 1 } else { 0 };
            seen = beats;
        }
    }
}

/// A bed's server changes, and the way to it breaks, only by what a test or a listener does, and at deadlines for
/// which somebody wakes. So while nothing happens, canaries, sweeps and repairs find what they found before. They
/// are left out then, and the next is made when it would have been made after all. (Slots of claims that are a day
/// old are tidied by the repair that follows the next thing to happen.)
impl VirtualTime for ActivitySignal {
    fn activity_so_far(&self) -> u64 {
        self.news.load(Ordering::Relaxed)
    }

    fn wait_for_activity(&self, than: u64) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            loop {
                let fresh = self.fresh.notified();
                if self.activity_so_far() != than {
                    return;
                }
                fresh.await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TestBed;
    use keylapse::Topic;
    use keylapse::{Done, Failure};

    /// All looks of a listener for nine hours after its first minute.
    async fn looks(topics: usize) -> usize {
        let bed = TestBed::counting();
        let topics = (0..topics).map(|topic| Topic::<u8>::new(&format!("t{topic}:{{id}}")).unwrap());
        let all = |listener| {
            topics.fold(listener, |listener: keylapse::ListenerBuilder, topic| {
                listener.on(topic, async |_| Ok::<_, Failure>(Done))
            })
        };
        let _listening = bed.listen(all).await.unwrap();
        let made =
            || ["canary", "peek", "repair"].iter().map(|look| bed.calls().made(look).len()).sum::<usize>();
        bed.advance(Duration::from_secs(60)).await;
        let before = made();
        bed.advance(Duration::from_secs(9 * 3600)).await;
        made() - before
    }

    #[tokio::test(start_paused = true)]
    async fn looks_that_would_find_nothing_are_left_out() {
        assert_eq!(looks(1).await, 0);
        // A round of repairs through five topics takes 150 s, and the minute had not seen all of it.
        assert_eq!(looks(5).await, 18);
    }
}
