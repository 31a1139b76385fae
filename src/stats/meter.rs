//! What is measured of a topic, and recorded through the facade `metrics` where the feature of that name is on.
//!
//! Names and labels stand in docs/operations.md. Labels are topics, nodes and words of ours: never keys.

#[cfg(feature = "metrics")]
mod recorded;
#[cfg(not(feature = "metrics"))]
#[path = "meter/unrecorded.rs"]
mod recorded;

pub(crate) use self::recorded::{Mirror, canary, gap};

use std::time::Duration;

use super::TopicCounters;
use crate::distribution::Times;
use crate::source::LapseSource;
use crate::wire::{DeadReason, Ending};

/// What is measured of one topic.
#[derive(Debug)]
pub(crate) struct Meter {
    /// From its deadline to the start of an attempt.
    pub(crate) lateness: Times,
    /// How long handlers take.
    pub(crate) handler: Times,
    recorded: recorded::Topic,
}

/// What came of a claim.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ClaimResult {
    Taken,
    Empty,
    Failed,
}

impl ClaimResult {
    #[cfg(feature = "metrics")]
    fn as_str(self) -> &'static str {
        match self {
            Self::Taken => "taken",
            Self::Empty => "empty",
            Self::Failed => "failed",
        }
    }
}

impl Meter {
    /// Of the topic with this name; what is counted of it is recorded as well.
    pub(crate) fn new(topic: &str, counters: &TopicCounters) -> Self {
        let recorded = recorded::Topic::new(topic);
        for (counter, name) in [
            (&counters.retried, "keylapse_retries_total"),
            (&counters.lost_leases, "keylapse_leases_lost_total"),
            (&counters.by_sweep, "keylapse_notifications_missed_total"),
        ] {
            counter.mirror.set(name, topic);
        }
        Self { lateness: Times::default(), handler: Times::default(), recorded }
    }

    /// An attempt begins.
    pub(crate) fn started(&self, source: LapseSource, late: Duration) {
        self.lateness.add(late);
        self.recorded.late(source, late);
    }

    /// A handler took so long.
    pub(crate) fn took(&self, time: Duration) {
        self.handler.add(time);
        self.recorded.handler(time);
    }

    /// An attempt has ended so.
    pub(crate) fn ended(&self, source: LapseSource, ending: Ending) {
        self.recorded.lapse(source, ending);
    }

    /// So many timers became dead letters.
    pub(crate) fn dead(&self, reason: DeadReason, count: u64) {
        self.recorded.dead(reason, count);
    }

    /// A claim was answered, or was not.
    pub(crate) fn claim(&self, result: ClaimResult) {
        self.recorded.claim(result);
    }
}
