//! Signals of activity in a bed, so that tests need not sleep and poll.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::sleep;

use keylapse::inside::VirtualTime;

/// After this many turns of the scheduler without a signal, nothing runs until time passes. One turn mostly runs all
/// ready tasks. More turns let handlers exchange messages with tasks of their own.
const IDLE_TURNS: usize = 50;
/// A condition may depend on state that sends no signal.
const RECHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Signals each call of the server, each delivered message, and each start and end of an attempt.
#[derive(Debug, Default)]
pub(super) struct ActivitySignal {
    /// Counts polls, too.
    signals: AtomicU64,
    signalled: Notify,
    activities: AtomicU64,
    active: Notify,
}

impl ActivitySignal {
    pub(super) fn record_activity(&self) {
        self.activities.fetch_add(1, Ordering::Relaxed);
        self.active.notify_waiters();
        self.record_poll();
    }

    /// Records a periodic call or message, which changes nothing by itself.
    pub(super) fn record_poll(&self) {
        self.signals.fetch_add(1, Ordering::Relaxed);
        self.signalled.notify_waiters();
    }

    /// Calls `done` now, after each signal and at regular intervals, and returns its first result.
    pub(super) async fn wait_for<T>(&self, mut done: impl FnMut() -> Option<T>) -> T {
        loop {
            // Created before `done` runs, so that no later signal is missed.
            let signalled = self.signalled.notified();
            if let Some(answer) = done() {
                return answer;
            }
            tokio::select! {
                () = signalled => {}
                () = sleep(RECHECK_INTERVAL) => {}
            }
        }
    }

    /// Lets all ready tasks run without letting time pass.
    pub(super) async fn run_until_idle(&self) {
        let (mut seen, mut idle_turns) = (self.signals.load(Ordering::Relaxed), 0);
        while idle_turns < IDLE_TURNS {
            yield_now().await;
            let signals = self.signals.load(Ordering::Relaxed);
            idle_turns = if signals == seen { idle_turns + 1 } else { 0 };
            seen = signals;
        }
    }
}

/// Lets listeners skip polls while nothing happens.
///
/// A bed's server and its connections change only by actions of the test or of a listener, and at deadlines that wake a
/// task. Without activity, heartbeats, sweeps and repairs would find the state of the last round again. Claim slots that
/// are a day old are deleted by the repair after the next activity.
impl VirtualTime for ActivitySignal {
    fn activity_so_far(&self) -> u64 {
        self.activities.load(Ordering::Relaxed)
    }

    fn wait_for_activity(&self, than: u64) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            loop {
                let active = self.active.notified();
                if self.activity_so_far() != than {
                    return;
                }
                active.await;
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

    /// Returns the number of polls of a listener in nine hours after its first minute.
    async fn polls(topics: usize) -> usize {
        let bed = TestBed::counting();
        let topics = (0..topics).map(|topic| Topic::<u8>::new(&format!("t{topic}:{{id}}")).unwrap());
        let all = |listener| {
            topics.fold(listener, |listener: keylapse::ListenerBuilder, topic| {
                listener.on(topic, async |_| Ok::<_, Failure>(Done))
            })
        };
        let _listening = bed.listen(all).await.unwrap();
        let made =
            || ["canary", "peek", "repair"].iter().map(|call| bed.calls().made(call).len()).sum::<usize>();
        bed.advance(Duration::from_secs(60)).await;
        let before = made();
        bed.advance(Duration::from_secs(9 * 3600)).await;
        made() - before
    }

    #[tokio::test(start_paused = true)]
    async fn polls_without_activity_are_skipped() {
        assert_eq!(polls(1).await, 0);
        // A round of repairs through five topics takes 150 s, so the first minute had a part of it.
        assert_eq!(polls(5).await, 18);
    }
}
