//! With the feature: the metrics that there are.
//!
//! What happens for each timer is looked up once, when it first happens, so that nothing shows that never does.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use metrics::{Counter, Histogram, Unit, counter, describe_counter, describe_histogram, histogram};

use super::ClaimResult;
use crate::source::LapseSource;
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
