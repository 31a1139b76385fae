//! Metrics of a topic. With the feature `metrics` they are exported through the facade of that name.
//!
//! docs/monitor.md lists names and labels. Labels are topics, nodes and fixed words, never keys.

pub(crate) use self::recorded::{ExportedCounter, canary, gap};

use std::time::Duration;

use super::TopicCounters;
use crate::figures::DurationHistogram;
use crate::lapse::LapseSource;
use crate::wire::{DeadReason, Ending};

/// The metrics of one topic.
#[derive(Debug)]
pub(crate) struct Meter {
    /// The time from the deadline to the start of the attempt.
    pub(crate) lateness: DurationHistogram,
    /// The duration of handlers.
    pub(crate) handler: DurationHistogram,
    recorded: recorded::TopicRecorder,
}

/// The result of a claim.
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
    /// Creates the metrics of a topic, and exports some of its counters.
    pub(crate) fn new(topic: &str, counters: &TopicCounters) -> Self {
        let recorded = recorded::TopicRecorder::new(topic);
        for (counter, name) in [
            (&counters.retried, "keylapse_retries_total"),
            (&counters.lost_leases, "keylapse_leases_lost_total"),
            (&counters.by_sweep, "keylapse_notifications_missed_total"),
        ] {
            counter.mirror.set(name, topic);
        }
        Self { lateness: DurationHistogram::default(), handler: DurationHistogram::default(), recorded }
    }

    /// Records the start of an attempt.
    pub(crate) fn started(&self, source: LapseSource, late: Duration) {
        self.lateness.add(late);
        self.recorded.late(source, late);
    }

    /// Records the duration of a handler.
    pub(crate) fn took(&self, time: Duration) {
        self.handler.add(time);
        self.recorded.handler(time);
    }

    /// Records the end of an attempt.
    pub(crate) fn ended(&self, source: LapseSource, ending: Ending) {
        self.recorded.lapse(source, ending);
    }

    /// Records timers that became dead letters.
    pub(crate) fn dead(&self, reason: DeadReason, count: u64) {
        self.recorded.dead(reason, count);
    }

    /// Records the result of a claim.
    pub(crate) fn claim(&self, result: ClaimResult) {
        self.recorded.claim(result);
    }
}

/// The exported metrics. Handles of frequent metrics are created when first used and then kept, so that unused
/// metrics are not exported.
#[cfg(feature = "metrics")]
mod recorded {
    use std::fmt;
    use std::sync::OnceLock;
    use std::time::Duration;

    use metrics::{Counter, Histogram, Unit, counter, describe_counter, describe_histogram, histogram};

    use super::ClaimResult;
    use crate::lapse::LapseSource;
    use crate::wire::{DeadReason, Ending};

    /// The exported metric of a counter, if it has one.
    #[derive(Default)]
    pub(crate) struct ExportedCounter(OnceLock<Counter>);

    impl ExportedCounter {
        pub(super) fn set(&self, name: &'static str, topic: &str) {
            let _ = self.0.set(counter!(name, "topic" => topic.to_owned()));
        }

        pub(crate) fn add(&self, count: u64) {
            if let Some(counter) = self.0.get() {
                counter.increment(count);
            }
        }
    }

    /// The exported metrics of one topic. Arrays are indexed by source or by result.
    pub(super) struct TopicRecorder {
        name: String,
        late: [OnceLock<Histogram>; 3],
        handler: OnceLock<Histogram>,
        done: [OnceLock<Counter>; 3],
        claims: [OnceLock<Counter>; 3],
    }

    impl TopicRecorder {
        pub(super) fn new(name: &str) -> Self {
            describe();
            let (late, handler, done, claims) = Default::default();
            Self { name: name.to_owned(), late, handler, done, claims }
        }

        pub(super) fn late(&self, source: LapseSource, late: Duration) {
            let histogram = || histogram!("keylapse_lateness_seconds", "topic" => self.name.clone(), "source" => source.as_str());
            self.late[source as usize].get_or_init(histogram).record(late);
        }

        pub(super) fn handler(&self, time: Duration) {
            let histogram = || histogram!("keylapse_handler_seconds", "topic" => self.name.clone());
            self.handler.get_or_init(histogram).record(time);
        }

        pub(super) fn lapse(&self, source: LapseSource, ending: Ending) {
            let (topic, from) = (|| self.name.clone(), source.as_str());
            let counter = || counter!("keylapse_lapses_total", "topic" => topic(), "source" => from, "outcome" => ending.as_str());
            match ending {
                Ending::Done => self.done[source as usize].get_or_init(counter).increment(1),
                _ => counter().increment(1),
            }
        }

        pub(super) fn dead(&self, reason: DeadReason, count: u64) {
            let (topic, reason) = (self.name.clone(), reason.as_str());
            counter!("keylapse_dead_total", "topic" => topic, "reason" => reason).increment(count);
        }

        pub(super) fn claim(&self, result: ClaimResult) {
            let (topic, word) = (|| self.name.clone(), result.as_str());
            let counter = || counter!("keylapse_claims_total", "topic" => topic(), "result" => word);
            self.claims[result as usize].get_or_init(counter).increment(1);
        }
    }

    pub(crate) fn gap(node: &str, reason: &'static str) {
        counter!("keylapse_gaps_total", "node" => node.to_owned(), "reason" => reason).increment(1);
    }

    pub(crate) fn canary(node: &str, time: Duration) {
        histogram!("keylapse_heartbeat_seconds", "node" => node.to_owned()).record(time);
    }

    fn describe() {
        for (name, text) in [
            ("keylapse_lapses_total", "Attempts that have ended."),
            ("keylapse_retries_total", "Retries armed."),
            ("keylapse_dead_total", "Timers that ended as dead letters."),
            ("keylapse_leases_lost_total", "Leases that were lost."),
            ("keylapse_gaps_total", "Gaps in which events may have been missed."),
            ("keylapse_notifications_missed_total", "Attempts whose timer only a sweep found."),
            ("keylapse_claims_total", "Claims, by result."),
        ] {
            describe_counter!(name, text);
        }
        for (name, text) in [
            ("keylapse_lateness_seconds", "Time from the deadline to the start of the attempt."),
            ("keylapse_handler_seconds", "Duration of handlers."),
            ("keylapse_heartbeat_seconds", "Time from writing a heartbeat key to receiving its event."),
        ] {
            describe_histogram!(name, Unit::Seconds, text);
        }
    }

    impl fmt::Debug for ExportedCounter {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "ExportedCounter({})", self.0.get().is_some())
        }
    }

    impl fmt::Debug for TopicRecorder {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(&self.name)
        }
    }
}

/// Stubs that do nothing, for builds without the feature `metrics`.
#[cfg(not(feature = "metrics"))]
mod recorded {
    pub(crate) use self::UnexportedCounter as ExportedCounter;
    pub(super) use self::UnrecordedTopic as TopicRecorder;

    use std::time::Duration;

    use super::ClaimResult;
    use crate::lapse::LapseSource;
    use crate::wire::{DeadReason, Ending};

    #[derive(Debug, Default)]
    pub(crate) struct UnexportedCounter;

    impl UnexportedCounter {
        pub(super) fn set(&self, _: &'static str, _: &str) {}
        pub(crate) fn add(&self, _: u64) {}
    }

    #[derive(Debug)]
    pub(super) struct UnrecordedTopic;

    impl UnrecordedTopic {
        pub(super) fn new(_: &str) -> Self {
            Self
        }

        pub(super) fn late(&self, _: LapseSource, _: Duration) {}
        pub(super) fn handler(&self, _: Duration) {}
        pub(super) fn lapse(&self, _: LapseSource, _: Ending) {}
        pub(super) fn dead(&self, _: DeadReason, _: u64) {}
        pub(super) fn claim(&self, _: ClaimResult) {}
    }

    pub(crate) fn gap(_: &str, _: &'static str) {}
    pub(crate) fn canary(_: &str, _: Duration) {}
}
