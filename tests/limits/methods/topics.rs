//! Topics and what belongs to them: what is not refused has to serve a timer.

use std::time::Duration;

use keylapse::attach::WriteBack;
use keylapse::{Attached, Backoff, Done, Expired, Failure, Lapse, Topic};
use keylapse_testing::TestBed;
use serde_json::Value;

use super::values::{COUNTS, DURATIONS, NUMBERS, SIZES, texts};
use super::{Case, or_refused, paused};

pub(super) const CASES: &[Case] = &[
    (&["Topic::new"], || each(texts(), |text| Topic::new(&text))),
    (&["Topic::named"], || {
        each(texts(), |text| Topic::named(&text, "a:{id}"));
        each(texts(), |text| Topic::named("a", &text));
    }),
    (&["Topic::raw"], || texts().iter().for_each(|text| drop(or_refused(Topic::raw(text))))),
    (&["Topic::raw_named"], || {
        for text in texts() {
            or_refused(Topic::raw_named(&text, "a:{id}"));
            or_refused(Topic::raw_named("a", &text));
        }
    }),
    (&["Topic::max_attempts"], || served(NUMBERS, Topic::max_attempts)),
    (&["Topic::max_age"], || served(DURATIONS, Topic::max_age)),
    (&["Topic::max_snoozes"], || served([0, 1, u16::MAX], Topic::max_snoozes)),
    (&["Topic::max_delay"], || served(DURATIONS, Topic::max_delay)),
    (&["Topic::undecodable_retention"], || served(DURATIONS, Topic::undecodable_retention)),
    (&["Topic::timeout"], || served(DURATIONS, Topic::timeout)),
    (&["Topic::lease"], || served(DURATIONS, Topic::lease)),
    (&["Topic::lookahead"], || served(DURATIONS, Topic::lookahead)),
    (&["Topic::concurrency"], || served(SIZES, Topic::concurrency)),
    (&["Topic::partitions"], || served(NUMBERS, Topic::partitions)),
    (&["Topic::payload_limit"], || served(SIZES, Topic::payload_limit)),
    (&["Topic::dead_letters"], || {
        served(COUNTS, |topic, count| topic.dead_letters(count, Duration::MAX));
        served(DURATIONS, |topic, age| topic.dead_letters(u64::MAX, age));
    }),
    (&["Topic::journal"], || {
        served(COUNTS, |topic, count| topic.journal(count, Duration::MAX));
        served(DURATIONS, |topic, age| topic.journal(5, age));
    }),
    (&["Backoff::fixed"], || served(DURATIONS, |topic, delay| topic.retry(Backoff::fixed(delay)))),
    (&["Backoff::custom"], || served(DURATIONS, |topic, delay| topic.retry(Backoff::custom(move |_| delay)))),
    (&["Backoff::exponential"], || {
        served(DURATIONS, |topic, base| topic.retry(Backoff::exponential(base, Duration::MAX)));
        served(DURATIONS, |topic, cap| topic.retry(Backoff::exponential(Duration::MAX, cap)));
    }),
    (&["Backoff::table"], || {
        served(DURATIONS, |topic, delay| topic.retry(Backoff::table([delay, Duration::MAX])));
        served([0, 1, 100_000], |topic, count| topic.retry(Backoff::table(vec![Duration::MAX; count])));
    }),
    (&["Backoff::delay"], || {
        for backoff in [
            Backoff::table([]),
            Backoff::table([Duration::MAX]),
            Backoff::payment_notice(),
            Backoff::default(),
        ] {
            for attempt in NUMBERS {
                assert!(backoff.delay(attempt) <= keylapse::limits::MAX_DELAY);
            }
        }
    }),
    (&["Attached::cap"], || attached(SIZES, Attached::cap)),
    (&["Attached::keep_values"], || attached(SIZES, Attached::keep_values)),
    (&["Attached::keep_fields"], || {
        attached(texts(), |topic, field| topic.keep_values(1000).keep_fields([field]));
        attached([0, 1, 1000, 1001], |topic, count| {
            topic.keep_values(1000).keep_fields((0..count).map(|n: u32| n.to_string()))
        });
    }),
    (&["Attached::revision"], || attached(NUMBERS, Attached::revision)),
    (&["Attached::scan_every"], || attached(DURATIONS, Attached::scan_every)),
    (&["Attached::scan_rate"], || attached(NUMBERS, Attached::scan_rate)),
    (&["attach::WriteBack::counting_in"], || {
        attached(texts(), |topic, field| topic.keep_values(1000).write_back(WriteBack::counting_in(field)));
    }),
];

fn topic() -> Topic<String> {
    Topic::new("tried:{id}").unwrap()
}

/// Topics as they are made of these.
fn each(values: Vec<String>, make: impl Fn(String) -> keylapse::Result<Topic<String>>) {
    values.into_iter().for_each(|value| drop(or_refused(make(value))));
}

/// A listener with each of these topics runs a timer, and goes on when one has failed.
fn served<V>(values: impl IntoIterator<Item = V>, set: impl Fn(Topic<String>, V) -> Topic<String>) {
    let handle = |lapse: Lapse<String>| async move {
        if lapse.payload() == "fails" { Err(Failure::retry("as planned")) } else { Ok(Done) }
    };
    for topic in values.into_iter().map(|value| set(topic(), value)) {
        paused(async {
            let bed = TestBed::new();
            let listening = bed.listen(|builder| builder.on(topic.clone(), handle)).await;
            let Some(listening) = or_refused(listening) else {
                assert!(
                    or_refused(bed.schedule().arm(&topic, "1", Duration::ZERO, &String::new()).await)
                        .is_none()
                );
                return;
            };
            for payload in ["fails", ""] {
                let arm =
                    bed.schedule().arm(&topic, payload.len(), Duration::ZERO, &payload.to_owned()).await;
                let Some(armed) = or_refused(arm) else { return };
                assert!(armed.is_armed());
            }
            bed.until(|runs| runs.iter().any(|run| run.key == "tried:0" && run.end.is_some())).await;
            bed.advance(Duration::from_secs(5)).await;
            assert!(bed.runs(&topic).iter().any(|run| run.key == "tried:5"), "{topic:?}");
            listening.stop().await.unwrap();
        });
    }
}

/// A listener with each of these topics hears a key expire whose handler fails once.
fn attached<V>(values: impl IntoIterator<Item = V>, set: impl Fn(Attached<Value>, V) -> Attached<Value>) {
    for topic in values.into_iter().map(|value| set(Attached::new(Topic::new("tried:{id}").unwrap()), value))
    {
        paused(async {
            let bed = TestBed::new();
            let handle = |lapse: Lapse<Expired<Value>>| async move {
                if lapse.attempt() == 1 { Err(Failure::retry("as planned")) } else { Ok(Done) }
            };
            let listening = bed.listen(|builder| builder.attach(topic.clone(), handle)).await;
            let Some(listening) = or_refused(listening) else { return };
            bed.advance(Duration::from_secs(2)).await;
            bed.command(["SET", "tried:1", "{\"a\":1}", "PX", "1000"]);
            bed.until(|runs| !runs.is_empty()).await;
            bed.advance(Duration::from_secs(5)).await;
            listening.stop().await.unwrap();
        });
    }
}
