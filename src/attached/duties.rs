//! The duties of this listener: the topics for which it scans, and those for which it tracks keys when they are written.
//!
//! Two listeners of each topic have a duty. Both track written keys, and one of them also scans. If one of the two dies,
//! the other has read everything that was written. Other listeners receive events and check keys, but do not read keys
//! that have changed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::Result;
use crate::id::SlotId;
use crate::log::debug;
use crate::runtime::{Partition, RunningTopic, Runtime, StreamSnapshot};
use crate::time::ms_ceil;
use crate::wire::Duty;

/// How long a duty lasts without a renewal.
const DUTY_HOLD: Duration = Duration::from_secs(6);
/// The longest pause between two calls that take or renew duties.
const RENEW_INTERVAL: Duration = Duration::from_secs(2);

/// The duties of a listener, for all its attached topics.
pub(crate) struct Duties {
    runtime: Arc<Runtime>,
    slot: SlotId,
    all: Vec<TopicDuty>,
    /// The indices of the topics that this listener scans for.
    scanned_topics: watch::Sender<BTreeSet<usize>>,
}

/// The duty of this listener for one topic.
struct TopicDuty {
    topic: Arc<RunningTopic>,
    duty: Duty,
    /// The start of the last call that succeeded. The duty ends `DUTY_HOLD` after it.
    renewed_at: Instant,
}

impl Duties {
    pub(crate) fn new(runtime: Arc<Runtime>, slot: SlotId) -> Self {
        let one = |topic: &Arc<RunningTopic>| TopicDuty {
            topic: topic.clone(),
            duty: Duty::None,
            renewed_at: Instant::now(),
        };
        let all = runtime.attached_topics().map(one).collect();
        Self { runtime, slot, all, scanned_topics: watch::Sender::default() }
    }

    /// Returns a receiver of the indices of the topics that this listener scans for.
    pub(crate) fn scanned_topics(&self) -> watch::Receiver<BTreeSet<usize>> {
        self.scanned_topics.subscribe()
    }

    /// Takes and renews duties until it is dropped.
    pub(crate) async fn run(mut self) {
        loop {
            let asked = Instant::now();
            let answers = join_all(self.all.iter().map(|one| self.take_or_renew(one))).await;
            for (one, answer) in self.all.iter_mut().zip(answers) {
                one.apply_answer(answer, asked);
            }
            self.publish_scanned_topics();
            tokio::time::sleep(RENEW_INTERVAL.mul_f64(rand::random_range(0.75..1.0))).await;
        }
    }

    /// Takes or renews the duty for a topic, and returns the duty that this listener now has.
    async fn take_or_renew(&self, one: &TopicDuty) -> Result<Duty> {
        let known = self.runtime.stream_state.snapshot();
        let yields = yields_duty(one.duty, known);
        let Partition { store, names, .. } = &*self.runtime.partitions_of(&one.topic)[0];
        store.take_duty(names, self.slot, ms_ceil(DUTY_HOLD), yields).await
    }

    fn publish_scanned_topics(&self) {
        let scans = self.all.iter().filter(|one| one.duty == Duty::Scan).map(|one| one.topic.index);
        let scans: BTreeSet<_> = scans.collect();
        self.scanned_topics.send_if_modified(|before| {
            *before != scans && {
                *before = scans;
                true
            }
        });
    }
}

/// Returns whether this listener yields a duty to listeners that receive events. In a gap it takes no new duty. It
/// gives up a duty that it has only if it receives no events at all. One of several servers may send events to no
/// listener. Its keys are found by scans, which start over when the duty moves, so one anchored server is enough to
/// keep a duty.
fn yields_duty(duty: Duty, known: StreamSnapshot) -> bool {
    !known.anchored && (duty == Duty::None || known.mode.receives_nothing())
}

impl TopicDuty {
    fn apply_answer(&mut self, answer: Result<Duty>, asked: Instant) {
        let before = self.duty;
        match answer {
            Ok(duty) => (self.duty, self.renewed_at) = (duty, asked),
            Err(error) => {
                debug!(topic = %self.topic.config.name, %error, "cannot take or renew the duty for an attached topic");
                if self.renewed_at.elapsed() >= DUTY_HOLD {
                    self.duty = Duty::None;
                }
            }
        }
        if self.duty != before {
            debug!(topic = %self.topic.config.name, duty = ?self.duty, "duty for an attached topic changed");
            self.topic.tracks_written_keys.store(self.duty != Duty::None, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::EventMode;

    #[test]
    fn who_hears_something_keeps_its_duty_though_one_of_several_servers_is_blind() {
        for (duty, anchored, mode, yields) in [
            (Duty::Scan, true, EventMode::ScanOnly, false),
            (Duty::None, true, EventMode::ScanOnly, false),
            (Duty::Scan, false, EventMode::ScanOnly, true),
            (Duty::Scan, false, EventMode::Changes, false),
            (Duty::None, false, EventMode::Changes, true),
        ] {
            let known = StreamSnapshot { anchored, mode, ..StreamSnapshot::default() };
            assert_eq!(yields_duty(duty, known), yields, "{duty:?} {known:?}");
        }
    }
}
