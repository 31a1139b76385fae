//! Several values of `Topic` with one name, used with one schedule: each counts for itself.

use std::time::{Duration, SystemTime};

use keylapse::limits::MAX_DELAY;
use keylapse::timers::Durably;
use keylapse::{Attached, ErrorKind, NewArm, Result, Schedule, Topic};
use keylapse_console::{Action, Console};
use keylapse_testing::TestBed;

const HOUR: Duration = Duration::from_secs(3600);

fn orders() -> Topic<String> {
    Topic::new("order:unpaid:{id}").unwrap()
}

/// Returns what each call of a schedule and a console that uses a topic answers.
async fn each_call(
    schedule: &Schedule,
    console: &Console,
    topic: &Topic<String>,
) -> Vec<(&'static str, Result<()>)> {
    let (text, arm) = (String::new(), || NewArm::new("42", HOUR, String::new()));
    let durably = Durably::replicas(0).within(Duration::from_millis(1));
    vec![
        ("arm", schedule.arm(topic, "42", HOUR, &text).await.map(drop)),
        ("arm at a time", schedule.arm(topic, "42", SystemTime::now() + HOUR, &text).await.map(drop)),
        ("arm durably", schedule.arm(topic, "42", HOUR, &text).durably(durably).await.map(drop)),
        ("arm if absent", schedule.arm(topic, "42", HOUR, &text).only_if_absent().await.map(drop)),
        ("arm_many", schedule.arm_many(topic, [arm()]).await.map(drop)),
        ("for_each", schedule.arm_many(topic, [arm()]).for_each(|_, _| ()).await.map(drop)),
        ("cancel", schedule.cancel(topic, "42").await.map(drop)),
        ("cancel_many", schedule.cancel_many(topic, ["42"]).await.map(drop)),
        ("reschedule", schedule.reschedule(topic, "42", HOUR).await.map(drop)),
        ("reschedule_many", schedule.reschedule_many(topic, [("42", HOUR)]).await.map(drop)),
        ("look_up", schedule.look_up(topic, "42").await.map(drop)),
        ("pause", schedule.pause(topic, "why").await),
        ("resume", schedule.resume(topic).await),
        ("dead letter", schedule.dead_letters(topic).next().await.map(drop)),
        ("page of dead letters", schedule.dead_letters(topic).page(1).await.map(drop)),
        ("dead_letter_counts", schedule.dead_letter_counts(topic).await.map(drop)),
        ("repartition", console.repartition(topic, 1).await.map(drop)),
        ("destroy", console.destroy(topic).forced().await.map(drop)),
    ]
}

#[tokio::test(start_paused = true)]
async fn what_no_topic_can_be_is_refused_by_each_call_whatever_the_schedule_has_used_before() {
    let bed = TestBed::new();
    let (schedule, console) = (bed.schedule(), Console::new(bed.client()));
    for (call, answer) in each_call(&schedule, &console, &orders()).await {
        answer.unwrap_or_else(|error| panic!("{call}: {error}"));
    }
    let _ = schedule.arm(&orders(), "1", HOUR, &"kept".to_owned()).await.unwrap();
    for (setting, topic) in [
        ("payload_limit", orders().payload_limit(usize::MAX)),
        ("max_delay", orders().max_delay(Duration::MAX)),
        ("max_attempts", orders().max_attempts(0)),
        ("concurrency", orders().concurrency(0)),
        ("timeout", orders().timeout(Duration::ZERO)),
        ("lease", orders().lease(Duration::ZERO)),
        ("lookahead", orders().lookahead(Duration::MAX)),
        ("dead_letters", orders().dead_letters(0, HOUR)),
        ("journal", orders().journal(u64::MAX, HOUR)),
        ("partitions", orders().partitions(0)),
    ] {
        for (call, answer) in each_call(&schedule, &console, &topic).await {
            let error = answer.err().unwrap_or_else(|| panic!("{call} takes {setting}"));
            assert_eq!(error.kind(), ErrorKind::Invalid, "{call}: {error}");
            assert!(error.to_string().contains(setting), "{call}, {setting}: {error}");
        }
    }
    assert!(schedule.look_up(&orders(), "1").await.unwrap().is_some(), "nothing has changed");
}

#[tokio::test(start_paused = true)]
async fn payloads_and_delays_are_held_to_the_limits_of_the_topic_that_is_given() {
    let bed = TestBed::new();
    let schedule = bed.schedule();
    let wide = orders().payload_limit(keylapse::limits::MAX_PAYLOAD).max_delay(MAX_DELAY);
    let narrow = orders().payload_limit(10).max_delay(HOUR);
    for _ in 0..2 {
        let armed = schedule.arm(&wide, "1", MAX_DELAY, &"x".repeat(1000)).await.unwrap();
        assert!(armed.is_armed());
        let long = schedule.arm(&narrow, "1", HOUR, &"x".repeat(10)).await.unwrap_err();
        assert_eq!(long.kind(), ErrorKind::TooLarge, "{long}");
        let late = schedule.reschedule(&narrow, "1", 2 * HOUR).await.unwrap_err();
        assert!(late.to_string().contains("over the limit of 3600s"), "{late}");
    }
}

/// A topic that asks for a journal is one that says something, whenever it comes.
#[tokio::test(start_paused = true)]
async fn a_journal_is_kept_from_the_first_use_of_the_topic_that_asks_for_it() {
    let bed = TestBed::new();
    let (schedule, console) = (bed.schedule(), Console::new(bed.client()));
    let kept = async || {
        let topic = console.topic("order.unpaid").await.unwrap();
        topic.journal_bounds().await.unwrap().map(|kept| (kept.count, kept.age_ms))
    };
    schedule.resume(&orders()).await.unwrap();
    assert_eq!(kept().await, None);
    schedule.resume(&orders().journal(5, HOUR)).await.unwrap();
    assert_eq!(kept().await, Some((5, 3_600_000)));
    schedule.resume(&orders()).await.unwrap();
    assert_eq!(kept().await, Some((5, 3_600_000)), "one that says nothing changes nothing");
    schedule.resume(&orders().journal(0, Duration::ZERO)).await.unwrap();
    assert_eq!(kept().await, None);
    schedule.resume(&orders().journal(7, Duration::MAX)).await.unwrap();
    assert_eq!(kept().await.map(|(count, _)| count), Some(7), "for ever");
}

#[tokio::test(start_paused = true)]
async fn a_topic_of_the_other_kind_is_refused_whatever_the_schedule_has_used_before() {
    let bed = TestBed::new();
    let schedule = bed.schedule();
    let _ = schedule.arm(&orders(), "1", HOUR, &String::new()).await.unwrap();
    let attached = Attached::new(orders());
    let refused = schedule.pause(attached.topic(), "").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    schedule.pause(&orders(), "").await.unwrap();
}

/// Nothing tells an operator's program of `allow_any_prefix`.
#[tokio::test(start_paused = true)]
async fn operators_can_do_all_with_an_attached_topic_without_a_prefix() {
    let bed = TestBed::new();
    let all = Attached::new(Topic::<String>::named("all", "{what}:{id}").unwrap()).allow_any_prefix();
    bed.schedule().resume(all.topic()).await.unwrap();
    let topic = Console::new(bed.client()).topic("all").await.unwrap();
    topic.pause("").await.unwrap();
    topic.resume().await.unwrap();
    topic.act(Action::Cancel, b"order:1", None).await.unwrap();
    topic.detach().await.unwrap();
}
