//! The methods that producers call, and the values that handlers return.

use std::time::Duration;

use futures::stream::iter;
use keylapse::dead_letters::DeadReason;
use keylapse::forward::ForwardTo;
use keylapse::pattern::Captures;
use keylapse::stats::Distribution;
use keylapse::timers::{ArmingId, Durably};
use keylapse::{ArmResult, Done, Failure, Key, Lapse, NewArm, Outcome, Schedule, Topic, When};
use keylapse_testing::TestBed;

use super::values::{COUNTS, DURATIONS, NUMBERS, SHARES, SIZES, long, texts, whens};
use super::{Case, or_refused, paused};

pub(super) const CASES: &[Case] = &[
    (
        &[
            "Schedule::arm",
            "Schedule::cancel",
            "Schedule::look_up",
            "Schedule::reschedule",
            "Schedule::arm_many",
            "Schedule::arm_stream",
            "Schedule::cancel_many",
            "Schedule::cancel_stream",
            "Schedule::reschedule_many",
            "Schedule::reschedule_stream",
            "NewArm::new",
        ],
        || paused(keys_and_times()),
    ),
    (&["timers::ArmRequest::traceparent", "Schedule::trace"], || {
        paused(async {
            let (bed, topic) = (TestBed::new(), topic());
            for text in texts() {
                or_refused(bed.schedule().arm(&topic, "1", Duration::ZERO, &1).traceparent(&text).await);
                let traced = bed.schedule().trace(move || Some(text.clone()));
                assert!(traced.arm(&topic, "1", Duration::ZERO, &1).await.unwrap().is_armed());
            }
        });
    }),
    (&["timers::Durably::replicas", "timers::Durably::fsync", "timers::Durably::within"], || {
        paused(async {
            let (bed, topic) = (TestBed::new(), topic());
            for limit in DURATIONS {
                for count in NUMBERS {
                    for ask in [Durably::replicas(count), Durably::fsync(count)] {
                        let armed = bed
                            .schedule()
                            .arm(&topic, "1", Duration::ZERO, &1)
                            .durably(ask.within(limit))
                            .await;
                        assert!(armed.as_ref().is_ok_and(ArmResult::is_armed) || armed.is_err());
                    }
                }
            }
        });
    }),
    (&["forward::ForwardTo::list", "forward::ForwardTo::stream", "Schedule::forward"], || {
        paused(async {
            let bed = TestBed::new();
            for text in texts() {
                for to in [ForwardTo::list(text.clone()), ForwardTo::stream(format!("s{text}"))] {
                    or_refused(bed.schedule().forward(&to, &text, text.clone()).await);
                }
            }
        });
    }),
    (&["forward::ForwardTo::max_length", "forward::ForwardTo::deduplicate_for"], || {
        paused(async {
            let bed = TestBed::new();
            let forward = async |to: ForwardTo| bed.schedule().forward(&to, "1", "message").await.unwrap();
            for count in COUNTS {
                forward(ForwardTo::list(format!("l{count}")).max_length(count)).await;
                forward(ForwardTo::stream(format!("s{count}")).max_length(count)).await;
            }
            for time in DURATIONS {
                forward(ForwardTo::list(format!("r{time:?}")).deduplicate_for(time)).await;
            }
        });
    }),
    (&["Schedule::pause"], || {
        paused(async {
            let (bed, topic) = (TestBed::new(), topic());
            for text in texts() {
                bed.schedule().pause(&topic, &text).await.unwrap();
            }
            bed.schedule().resume(&topic).await.unwrap();
        });
    }),
    (&["dead_letters::DeadLetters::page"], || {
        paused(async {
            let (bed, topic) = (TestBed::new(), topic());
            let die = |_: Lapse<u32>| async { Err::<(), _>(Failure::dead(long())) };
            let listening = bed.listen(|builder| builder.on(topic.clone(), die)).await.unwrap();
            let _ = bed.schedule().arm(&topic, "1", Duration::ZERO, &1).await.unwrap();
            bed.until_finished().await;
            for count in SIZES {
                let page = bed.schedule().dead_letters(&topic).page(count).await.unwrap();
                assert_eq!(page.len(), count.min(1));
            }
            listening.stop().await.unwrap();
        });
    }),
    (&["Failure::retry", "Failure::dead", "Failure::retry_after", "Failure::retry_no_sooner"], || {
        for text in texts() {
            for failure in [
                Failure::retry(&text),
                Failure::dead(&text),
                Failure::retry_after(Duration::MAX, &text),
                Failure::retry_no_sooner(Duration::MAX, &text),
            ] {
                assert!(failure.message().len() <= 8 << 10 && failure.to_string() == failure.message());
                ended(Err(failure));
            }
        }
        // With their delays those that are outcomes, too.
        for delay in DURATIONS {
            ended(Err(Failure::retry_after(delay, "")));
            ended(Err(Failure::retry_no_sooner(delay, "")));
            ended(Ok(Outcome::Again(delay)));
            ended(Ok(Outcome::Snooze(delay)));
        }
    }),
    (&["Lapse::capture"], || {
        paused(async {
            let (bed, topic) = (TestBed::new(), topic());
            let look = |lapse: Lapse<u32>| async move {
                assert_eq!(texts().iter().find_map(|text| lapse.capture(text)), None);
                Ok::<_, Failure>(Done)
            };
            let listening = bed.listen(|builder| builder.on(topic.clone(), look)).await;
            let _ = bed.schedule().arm(&topic, "1", Duration::ZERO, &1).await.unwrap();
            bed.until_finished().await;
            let stats = listening.unwrap();
            for name in texts() {
                let stats = stats.stats();
                assert!(stats.topic(&name).is_none() && stats.attached(&name).is_none());
                assert!(stats.lateness(&name).is_none() && stats.handler_times(&name).is_none());
            }
        });
    }),
    // Looked up there.
    (
        &[
            "stats::Stats::topic",
            "stats::Stats::attached",
            "stats::Stats::lateness",
            "stats::Stats::handler_times",
        ],
        || {},
    ),
    (&["fleet::ListenerReport::serves"], || {
        paused(async {
            let bed = TestBed::new();
            let listening =
                bed.listen(|builder| builder.on(topic(), async |_| Ok::<(), Failure>(()))).await.unwrap();
            bed.advance(Duration::from_secs(10)).await;
            let report = bed.schedule().listeners().await.unwrap().remove(0);
            assert!(texts().iter().all(|text| !report.serves(text)));
            listening.stop().await.unwrap();
        });
    }),
    (&["timers::ArmingId::from_bytes"], || {
        for length in [0, 1, 7, 8, 9, 1 << 20] {
            assert_eq!(ArmingId::from_bytes(&vec![0xff; length]).is_some(), length == 8);
        }
    }),
    (&["dead_letters::DeadReason::from_code"], || {
        for code in 0..=u8::MAX {
            assert_eq!(DeadReason::from_code(code).code(), code);
        }
    }),
    (&["stats::Distribution::quantile"], || {
        for numbers in [vec![], vec![u64::MAX; 1000], vec![0, 1], vec![1, 0, u64::MAX]] {
            let times = Distribution::from(numbers);
            SHARES.into_iter().for_each(|share| _ = times.quantile(share));
        }
    }),
    (&["pattern::Captures::get", "pattern::Captures::get_str", "pattern::Captures::get_index"], || {
        let pattern = keylapse::pattern::Pattern::new("a:{id}").unwrap();
        let captures: Captures = pattern.matches(b"a:1").unwrap();
        assert!(texts().iter().all(|name| captures.get(name).is_none() && captures.get_str(name).is_none()));
        assert_eq!(SIZES.into_iter().filter_map(|at| captures.get_index(at)).count(), 1);
    }),
];

fn topic() -> Topic<u32> {
    Topic::new("tried:{id}").unwrap()
}

/// Each call with each key, and with each time.
async fn keys_and_times() {
    let (bed, topic) = (TestBed::new(), topic());
    let schedule = bed.schedule();
    let now = When::In(Duration::ZERO);
    for text in texts() {
        calls(&schedule, &topic, &text, now).await;
        or_refused(schedule.arm(&topic, Key(format!("tried:{text}")), now, &1).await);
        or_refused(schedule.cancel(&topic, Key(&text)).await);
        or_refused(schedule.look_up(&topic, [&text, &text]).await);
        or_refused(schedule.look_up(&topic, Vec::<String>::new()).await);
    }
    for when in whens() {
        calls(&schedule, &topic, "1", when).await;
    }
}

async fn calls(schedule: &Schedule, topic: &Topic<u32>, key: &str, when: When) {
    or_refused(schedule.arm(topic, key, when, &1).await);
    or_refused(schedule.look_up(topic, key).await);
    or_refused(schedule.reschedule(topic, key, when).await);
    for moved in schedule.reschedule_many(topic, [(key, when)]).await.unwrap() {
        or_refused(moved);
    }
    for moved in schedule.reschedule_stream(topic, iter([(key, when)])).await.unwrap() {
        or_refused(moved);
    }
    or_refused(schedule.cancel(topic, key).await);
    for armed in schedule.arm_many(topic, [NewArm::new(key, when, 1)]).await.unwrap() {
        or_refused(armed);
    }
    for armed in schedule.arm_stream(topic, iter([NewArm::new(key, when, 1)])).await.unwrap() {
        or_refused(armed);
    }
    for cancelled in schedule.cancel_many(topic, [key]).await.unwrap() {
        or_refused(cancelled);
    }
    for cancelled in schedule.cancel_stream(topic, iter([key])).await.unwrap() {
        or_refused(cancelled);
    }
}

/// A listener goes on whose handler ends like this.
fn ended(answer: Result<Outcome, Failure>) {
    paused(async {
        let (bed, topic) = (TestBed::new(), topic().max_snoozes(3).max_attempts(3));
        let answer = std::sync::Mutex::new(Some(answer));
        let handle = move |_: Lapse<u32>| {
            let answer = answer.lock().unwrap().take();
            std::future::ready(answer.unwrap_or(Ok(Outcome::Done)))
        };
        let listening = bed.listen(|builder| builder.on(topic.clone(), handle)).await.unwrap();
        let _ = bed.schedule().arm(&topic, "1", Duration::ZERO, &1).await.unwrap();
        bed.until_ran(&topic, "1").await;
        bed.advance(Duration::from_secs(5)).await;
        listening.stop().await.unwrap();
    });
}
