//! The methods that operators call.

use std::time::Duration;

use bytes::Bytes;
use keylapse::{Attached, Failure, Lapse, Topic};
use keylapse_console::{Action, Console, Cursor, EntryState, Filter, JournalCursor, Limits, TopicHandle};
use keylapse_testing::TestBed;

use super::values::{COUNTS, DURATIONS, NUMBERS, SIZES, texts, whens};
use super::{Case, or_refused, paused};

const HOUR: Duration = Duration::from_secs(3600);

pub(super) const CASES: &[Case] = &[
    (
        &[
            "console::Console::topic",
            "console::Console::topics_named",
            "console::Console::topics_of",
            "console::Console::registered",
            "console::Console::status_named",
            "console::Console::tail",
            "console::Console::try_now",
            "console::Console::explain_key",
        ],
        || {
            with_topic(async |console, _| {
                for text in texts() {
                    or_refused(console.topic(&text).await);
                    or_refused(console.topics_named(&[&text]).await);
                    or_refused(console.topics_of(text.as_bytes()).await);
                    or_refused(console.registered(&[&text]).await);
                    or_refused(console.status_named(&[&text]).await);
                    or_refused(console.tail(&[&text]).await);
                    or_refused(console.try_now(&text, "a:1").await);
                    or_refused(console.try_now("tried", &text).await);
                    or_refused(console.explain_key(text.as_bytes()).await);
                }
            });
        },
    ),
    (&["console::Console::status"], || {
        with_topic(async |console, topic| {
            for most in SIZES {
                let status = console.status(most).await.unwrap();
                for limits in [
                    Limits::default().overdue(Some(Duration::MAX)),
                    Limits::default().listeners(Some(usize::MAX)),
                ] {
                    drop(limits.check(&status));
                }
            }
            assert!(topic.matches(b"tried:1"));
        });
    }),
    (
        &[
            "console::TopicHandle::arm",
            "console::TopicHandle::act",
            "console::TopicHandle::matches",
            "console::TopicHandle::timer",
            "console::TopicHandle::dead_letters_of_key",
            "console::TopicHandle::journal_of_key",
            "console::TopicHandle::tracked_key",
            "console::TopicHandle::explain_key",
        ],
        || with_topic(keys_and_times),
    ),
    (&["console::TopicHandle::pause"], || {
        with_topic(async |_, topic| {
            for text in texts() {
                topic.pause(&text).await.unwrap();
            }
            topic.resume().await.unwrap();
        });
    }),
    (&["console::Console::repartition", "console::RepartitionRequest::wait"], || {
        with_topic(async |console, _| {
            for partitions in NUMBERS {
                or_refused(console.repartition(&tried(), partitions).await);
            }
            for (at, limit) in DURATIONS.into_iter().enumerate() {
                console.repartition(&tried(), 2 + u32::try_from(at % 2).unwrap()).wait(limit).await.unwrap();
            }
        });
    }),
    (&["console::TopicHandle::repartition"], || {
        with_topic(async |console, topic| {
            for partitions in NUMBERS {
                or_refused(topic.repartition(partitions, Duration::MAX).await);
            }
            for (at, wait) in DURATIONS.into_iter().enumerate() {
                let topic = console.topic(topic.name()).await.unwrap();
                topic.repartition(2 + u32::try_from(at % 2).unwrap(), wait).await.unwrap();
            }
        });
    }),
    (
        &["console::TopicHandle::page", "console::TopicHandle::filtered", "console::TopicHandle::journal"],
        || {
            with_topic(async |_, topic| {
                let cursors: Vec<Cursor> =
                    texts().iter().filter_map(|text| or_refused(text.parse())).collect();
                let behind: Vec<JournalCursor> =
                    texts().iter().filter_map(|text| or_refused(text.parse())).collect();
                let extreme = [
                    "0@0/",
                    "18446744073709551615@0/x",
                    "18446744073709551615@4294967295/x",
                    "99999999999999999999@0/x",
                ];
                let more: Vec<Cursor> = extreme.iter().filter_map(|text| or_refused(text.parse())).collect();
                let later: Vec<JournalCursor> =
                    extreme.iter().filter_map(|text| or_refused(text.parse())).collect();
                for count in SIZES {
                    for state in EntryState::ALL {
                        for after in cursors.iter().chain(&more).map(Some).chain([None]) {
                            or_refused(topic.page(state, after, count).await);
                            for payload in SIZES {
                                or_refused(
                                    topic
                                        .filtered(state, &Filter::default(), after, count, Some(payload))
                                        .await,
                                );
                            }
                        }
                    }
                    for behind in behind.iter().chain(&later).map(Some).chain([None]) {
                        or_refused(topic.journal(behind, count).await);
                    }
                }
            });
        },
    ),
    (&["console::Filter::parse", "console::Filter::passes"], || {
        with_topic(async |_, topic| {
            let entry = topic.page(EntryState::Waiting, None, 1).await.unwrap().entries.remove(0);
            let words = ["key", "reason", "attempt", "error", "older", "newer", "due", "id", "payload"];
            let numbers = [
                "0",
                ">0",
                "<0",
                ">18446744073709551615",
                "<99999999999999999999",
                "36500d",
                "36501d",
                "18446744073709551615ms",
            ];
            for value in texts().iter().map(String::as_str).chain(numbers) {
                for text in
                    words.map(|word| format!("{word}:{value}")).iter().map(String::as_str).chain([value])
                {
                    let Some(filter) = or_refused(Filter::parse([text])) else { continue };
                    COUNTS.into_iter().for_each(|now| _ = filter.passes(&entry, now));
                }
            }
        });
    }),
    (&["console::Bulk::limit", "console::Bulk::rate"], || {
        with_topic(async |_, topic| {
            let cancel = || topic.bulk(Action::Cancel, EntryState::Waiting, Filter::default());
            for limit in COUNTS {
                cancel().limit(limit).dry_run(true).run().await.unwrap();
                cancel().limit(limit).count().await.unwrap();
            }
            for rate in NUMBERS {
                cancel().rate(rate).run().await.unwrap();
            }
            for when in whens() {
                let report =
                    topic.bulk(Action::Reschedule(when), EntryState::Waiting, Filter::default()).run().await;
                or_refused(report);
            }
        });
    }),
    (
        &[
            "console::Console::survey",
            "console::SurveyRequest::cap",
            "console::SurveyRequest::scan_rate",
            "console::SurveyRequest::watch",
        ],
        || {
            with_topic(async |console, _| {
                for text in texts() {
                    or_refused(console.survey(&text));
                }
                let survey = || console.survey("other:{id}").unwrap();
                for cap in SIZES {
                    survey().cap(cap).run().await.unwrap();
                }
                for rate in NUMBERS {
                    survey().scan_rate(rate).run().await.unwrap();
                }
                for span in DURATIONS {
                    survey().watch(span).run().await.unwrap();
                }
            });
        },
    ),
    (&["console::doctor::DoctorRequest::measure"], || {
        with_topic(async |console, _| {
            for time in DURATIONS {
                drop(console.doctor().measure(time).await);
            }
        });
    }),
];

fn tried() -> Topic<u32> {
    Topic::new("tried:{id}").unwrap().journal(10, HOUR)
}

/// A topic with a timer, and another program's key.
#[allow(clippy::needless_pass_by_value)] // as a closure is written
fn with_topic(test: impl AsyncFn(&Console, &TopicHandle)) {
    paused(async {
        let bed = TestBed::new();
        let topic = tried();
        let attached = Attached::new(Topic::<u32>::new("other:{id}").unwrap());
        bed.schedule().resume(attached.topic()).await.unwrap();
        bed.command(["SET", "other:1", "x", "EX", "100000"]);
        let _ = bed.schedule().arm(&topic, "1", HOUR, &1).await.unwrap();
        let die = |_: Lapse<u32>| async { Err::<(), _>(Failure::dead("as planned")) };
        let listening = bed.listen(|builder| builder.on(topic.clone(), die)).await.unwrap();
        let _ = bed.schedule().arm(&topic, "dead", Duration::ZERO, &1).await.unwrap();
        bed.until_ran(&topic, "dead").await;
        bed.advance(Duration::from_secs(10)).await;
        listening.stop().await.unwrap();
        let console = Console::new(bed.client());
        test(&console, &console.topic("tried").await.unwrap()).await;
    });
}

async fn keys_and_times(console: &Console, topic: &TopicHandle) {
    let listeners = console.listeners().await.unwrap();
    for text in texts() {
        for key in [text.clone(), format!("tried:{text}")] {
            let key = key.as_bytes();
            topic.matches(key);
            or_refused(topic.arm(key, HOUR, Bytes::from(text.clone()), false).await);
            or_refused(topic.act(Action::Reschedule(HOUR.into()), key, None).await);
            or_refused(topic.act(Action::RunNow, key, None).await);
            or_refused(topic.journal_of_key(key).await);
            or_refused(topic.tracked_key(key).await);
            or_refused(topic.explain_key(key, &listeners).await);
            for payload in SIZES {
                or_refused(topic.timer(key, Some(payload)).await);
                or_refused(topic.dead_letters_of_key(key, Some(payload)).await);
            }
            or_refused(topic.act(Action::Cancel, key, None).await);
        }
    }
    for when in whens() {
        or_refused(topic.arm(b"tried:1", when, Bytes::new(), true).await);
        or_refused(topic.act(Action::Reschedule(when), b"tried:1", None).await);
    }
}
