//! For which topics this listener scans, and of which it enrols what it hears written.
//!
//! Two listeners of each topic enrol, and the first of them scans: so one of them can die, and all that was written has
//! been read.

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
use crate::runtime::{Known, Partition, RunningTopic, Runtime};
use crate::time::ms_ceil;
use crate::wire::Duty;

/// For how long a duty is a listener's, without its saying so again.
const HOLD: Duration = Duration::from_secs(6);
/// How often it says so, and others ask.
const RENEW: Duration = Duration::from_secs(2);

/// The duties of a listener, for all its attached topics.
pub(crate) struct Duties {
    runtime: Arc<Runtime>,
    slot: SlotId,
    all: Vec<Held>,
    /// The indices of the topics that it scans for.
    scans: watch::Sender<BTreeSet<usize>>,
}

/// What it does for one topic.
struct Held {
    topic: Arc<RunningTopic>,
    duty: Duty,
    /// When it asked for it last.
    since: Instant,
}

impl Duties {
    pub(crate) fn new(runtime: Arc<Runtime>, slot: SlotId) -> Self {
        let held = |topic: &Arc<RunningTopic>| Held {
            topic: topic.clone(),
            duty: Duty::None,
            since: Instant::now(),
        };
        let all = runtime.attached_topics().map(held).collect();
        Self { runtime, slot, all, scans: watch::Sender::default() }
    }

    /// For whoever scans.
    pub(crate) fn scans(&self) -> watch::Receiver<BTreeSet<usize>> {
        self.scans.subscribe()
    }

    /// Until it is dropped.
    pub(crate) async fn run(mut self) {
        loop {
            let asked = Instant::now();
            let answers = join_all(self.all.iter().map(|held| self.ask(held))).await;
            for (held, answer) in self.all.iter_mut().zip(answers) {
                held.learn(answer, asked);
            }
            self.tell();
            tokio::time::sleep(RENEW.mul_f64(rand::random_range(0.75..1.0))).await;
        }
    }

    /// Takes or keeps a duty, if there is one.
    async fn ask(&self, held: &Held) -> Result<Duty> {
        let known = self.runtime.stream_state.known();
        let patient = leaves_it_to_others(held.duty, known);
        let Partition { store, names, .. } = &*self.runtime.partitions_of(&held.topic)[0];
        store.hold_scanner(names, self.slot, ms_ceil(HOLD), patient).await
    }

    /// Says what has changed.
    fn tell(&self) {
        let scans = self.all.iter().filter(|held| held.duty == Duty::Scan).map(|held| held.topic.index);
        let scans: BTreeSet<_> = scans.collect();
        self.scans.send_if_modified(|before| {
            *before != scans && {
                *before = scans;
                true
            }
        });
    }
}

/// Whoever hears nothing leaves it to others, if there are any; who has it already, not for a short gap. Of several
/// servers one may be blind for all listeners: its keys are found by scanning, which begins anew at each change of hands.
fn leaves_it_to_others(duty: Duty, known: Known) -> bool {
    !known.anchored && (duty == Duty::None || known.mode.hears_nothing())
}

impl Held {
    fn learn(&mut self, answer: Result<Duty>, asked: Instant) {
        let before = self.duty;
        match answer {
            Ok(duty) => (self.duty, self.since) = (duty, asked),
            Err(error) => {
                debug!(topic = %self.topic.config.name, %error, "cannot ask who scans for keys");
                if self.since.elapsed() >= HOLD {
                    self.duty = Duty::None;
                }
            }
        }
        if self.duty != before {
            debug!(topic = %self.topic.config.name, duty = ?self.duty, "for the keys of others");
            self.topic.scanning.store(self.duty != Duty::None, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::EventMode;

    #[test]
    fn who_hears_something_keeps_its_duty_though_one_of_several_servers_is_blind() {
        for (duty, anchored, mode, leaves) in [
            (Duty::Scan, true, EventMode::Blind, false),
            (Duty::None, true, EventMode::Blind, false),
            (Duty::Scan, false, EventMode::Blind, true),
            (Duty::Scan, false, EventMode::Changes, false),
            (Duty::None, false, EventMode::Changes, true),
        ] {
            let known = Known { anchored, mode, ..Known::default() };
            assert_eq!(leaves_it_to_others(duty, known), leaves, "{duty:?} {known:?}");
        }
    }
}
