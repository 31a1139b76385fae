//! What is measured of a topic, and recorded through the facade `metrics` where the feature of that name is on.
//!
//! Names and labels stand in docs/operations.md. Labels are topics, nodes and words of ours: never keys.

pub(crate) use self::recorded::{Mirror, canary, gap};

use std::time::Duration;

use super::TopicCounters;
use crate::figures::Times;
use crate::lapse::LapseSource;
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

/// The metrics that there are. What happens for each timer is looked up once, when it first happens, so that nothing
/// shows that never does.
#[cfg(feature = "metrics")]
mod recorded {
    use std::fmt;
    use std::sync::OnceLock;
    use std::time::Duration;

    use metrics::{Counter, Histogram, Unit, counter, describe_counter, describe_histogram, histogram};

    use super::ClaimResult;
    use crate::lapse::LapseSource;
    use crate::wire::{DeadReason, Ending};

    /// A counter of ours that is recorded under another name as well.
    #[derive(Default)]
    pub(crate) struct Mirror(OnceLock<Counter>);

    impl Mirror {
        pub(super) fn set(&self, name: &'static str, topic: &str) {
            let _ = self.0.set(counter!(name, "topic" => topic.to_owned()));
        }

        pub(crate) fn add(&self, count: u64) {
            if let Some(counter) = self.0.get() {
                counter.increment(count);
            }
        }
    }

    /// What is recorded of one topic. Arrays are by source, and by result.
    pub(super) struct Topic {
        name: String,
        late: [OnceLock<Histogram>; 3],
        handler: OnceLock<Histogram>,
        done: [OnceLock<Counter>; 3],
        claims: [OnceLock<Counter>; 3],
    }

    impl Topic {
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
        histogram!("keylapse_canary_seconds", "node" => node.to_owned()).record(time);
    }

    fn describe() {
        for (name, says) in [
            ("keylapse_lapses_total", "Attempts that have ended."),
            ("keylapse_retries_total", "Retries armed."),
            ("keylapse_dead_total", "Timers that ended as dead letters."),
            ("keylapse_leases_lost_total", "Leases that could not be kept."),
            ("keylapse_gaps_total", "Times when something may have been missed."),
            ("keylapse_notifications_missed_total", "Attempts that nothing but a sweep has led to."),
            ("keylapse_claims_total", "Claims, by what came of them."),
        ] {
            describe_counter!(name, says);
        }
        for (name, says) in [
            ("keylapse_lateness_seconds", "From the deadline to the start of the attempt."),
            ("keylapse_handler_seconds", "How long handlers take."),
            ("keylapse_canary_seconds", "From making a canary to hearing it."),
        ] {
            describe_histogram!(name, Unit::Seconds, says);
        }
    }

    impl fmt::Debug for Mirror {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "Mirror({})", self.0.get().is_some())
        }
    }

    impl fmt::Debug for Topic {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(&self.name)
        }
    }
}

/// Without the feature nothing is recorded, and nothing is kept for it.
#[cfg(not(feature = "metrics"))]
mod recorded {
    use std::time::Duration;

    use super::ClaimResult;
    use crate::lapse::LapseSource;
    use crate::wire::{DeadReason, Ending};

    #[derive(Debug, Default)]
    pub(crate) struct Mirror;

    impl Mirror {
        pub(super) fn set(&self, _: &'static str, _: &str) {}
        pub(crate) fn add(&self, _: u64) {}
    }

    #[derive(Debug)]
    pub(super) struct Topic;

    impl Topic {
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
