//! What is counted and timed of deliveries, through the facade `metrics`: the program chooses who records it.
//!
//! Labels are topics and words of ours: never keys, and never hosts, which a payload may name.

use std::time::Duration;

use metrics::{Gauge, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

const WEBHOOKS: &str = "keylapse_webhooks_total";
const WEBHOOK_TIME: &str = "keylapse_webhook_seconds";
const CIRCUITS: &str = "keylapse_webhook_circuits_open";
const FORWARDS: &str = "keylapse_forwards_total";
const PROGRAMS: &str = "keylapse_programs_total";
const PROGRAM_TIME: &str = "keylapse_program_seconds";

/// Says what there is. Call it once a recorder is installed.
pub fn describe() {
    describe_counter!(
        WEBHOOKS,
        "Webhooks by topic and class: what the receiver answered, or why it was not called."
    );
    describe_histogram!(WEBHOOK_TIME, Unit::Seconds, "How long calls of webhooks take, by topic.");
    describe_gauge!(CIRCUITS, "Hosts of a topic that have failed too often and are left alone.");
    describe_counter!(FORWARDS, "Messages for a list or a stream, by topic and outcome.");
    describe_counter!(PROGRAMS, "Programs that were run, by topic and outcome.");
    describe_histogram!(PROGRAM_TIME, Unit::Seconds, "How long programs run, by topic.");
}

/// All classes of a topic's webhooks, from the start: an alert on their rates has something to go by.
pub(crate) fn webhooks_from_start(topic: &str, classes: impl Iterator<Item = &'static str>) {
    for class in classes {
        counter!(WEBHOOKS, "topic" => topic.to_owned(), "class" => class).increment(0);
    }
}

/// A webhook was called, or was not.
pub(crate) fn webhook(topic: &str, class: &'static str) {
    counter!(WEBHOOKS, "topic" => topic.to_owned(), "class" => class).increment(1);
}

/// A call took so long.
pub(crate) fn webhook_took(topic: &str, time: Duration) {
    histogram!(WEBHOOK_TIME, "topic" => topic.to_owned()).record(time);
}

/// How many hosts are left alone.
pub(crate) fn circuits(topic: &str) -> Gauge {
    gauge!(CIRCUITS, "topic" => topic.to_owned())
}

/// A message was put into a list or a stream, or was not.
pub(crate) fn forward(topic: &str, outcome: &'static str) {
    counter!(FORWARDS, "topic" => topic.to_owned(), "outcome" => outcome).increment(1);
}

/// A program ran for so long.
#[cfg(unix)]
pub(crate) fn program(topic: &str, outcome: &'static str, time: Duration) {
    counter!(PROGRAMS, "topic" => topic.to_owned(), "outcome" => outcome).increment(1);
    histogram!(PROGRAM_TIME, "topic" => topic.to_owned()).record(time);
}
