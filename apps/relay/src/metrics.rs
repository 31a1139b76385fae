//! Metrics of deliveries, through the facade `metrics`: the program installs the recorder.
//!
//! Labels are topics and fixed words. They are never keys, and never hosts, which a payload may name.

use std::time::Duration;

use metrics::{Gauge, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

const WEBHOOKS: &str = "keylapse_webhooks_total";
const WEBHOOK_TIME: &str = "keylapse_webhook_seconds";
const CIRCUITS: &str = "keylapse_webhook_circuits_open";
const FORWARDS: &str = "keylapse_forwards_total";
const PROGRAMS: &str = "keylapse_programs_total";
const PROGRAM_TIME: &str = "keylapse_program_seconds";

/// Describes the metrics of deliveries. Call it after a recorder is installed.
pub fn describe() {
    describe_counter!(
        WEBHOOKS,
        "Webhooks by topic and class: the receiver's answer, or the reason why it was not called."
    );
    describe_histogram!(WEBHOOK_TIME, Unit::Seconds, "Duration of webhook calls, by topic.");
    describe_gauge!(CIRCUITS, "Hosts of a topic that failed too often and are not called for now.");
    describe_counter!(FORWARDS, "Messages for a list or a stream, by topic and outcome.");
    describe_counter!(PROGRAMS, "Programs that were run, by topic and outcome.");
    describe_histogram!(PROGRAM_TIME, Unit::Seconds, "Duration of programs, by topic.");
}

/// Creates the counters of all classes of a topic's webhooks at 0, so that alerts can use their rates from the start.
pub(crate) fn webhooks_from_start(topic: &str, classes: impl Iterator<Item = &'static str>) {
    for class in classes {
        counter!(WEBHOOKS, "topic" => topic.to_owned(), "class" => class).increment(0);
    }
}

/// Counts a webhook, whether or not it was called.
pub(crate) fn webhook(topic: &str, class: &'static str) {
    counter!(WEBHOOKS, "topic" => topic.to_owned(), "class" => class).increment(1);
}

/// Records how long a call took.
pub(crate) fn webhook_took(topic: &str, time: Duration) {
    histogram!(WEBHOOK_TIME, "topic" => topic.to_owned()).record(time);
}

/// Returns the gauge of a topic's hosts that are not called for now.
pub(crate) fn circuits(topic: &str) -> Gauge {
    gauge!(CIRCUITS, "topic" => topic.to_owned())
}

/// Counts a message for a list or a stream.
pub(crate) fn forward(topic: &str, outcome: &'static str) {
    counter!(FORWARDS, "topic" => topic.to_owned(), "outcome" => outcome).increment(1);
}

/// Counts a program that ran, and records its duration.
#[cfg(unix)]
pub(crate) fn program(topic: &str, outcome: &'static str, time: Duration) {
    counter!(PROGRAMS, "topic" => topic.to_owned(), "outcome" => outcome).increment(1);
    histogram!(PROGRAM_TIME, "topic" => topic.to_owned()).record(time);
}
