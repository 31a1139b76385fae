//! Who of several topics gets the places of a listener.

use std::time::Duration;

use super::{ms, secs, succeed};
use crate::listening::log::log;
use keylapse::Lapse;
use keylapse::{Done, Failure};
use keylapse::{ErrorKind, Listener, ListenerBuilder, NewArm, Priority, Topic};
use keylapse_testing::{HandlerRun, TestBed};
use keylapse_testserver::CallFault;

const ALL: [(&str, Priority); 3] =
    [("high", Priority::High), ("normal", Priority::Normal), ("low", Priority::Low)];
const PLACES: usize = 4;
const EACH: usize = 1000;

fn topic(name: &str) -> Topic<u32> {
    Topic::new(&format!("{name}:{{id}}")).expect("the pattern is fine")
}

/// Takes so many milliseconds as the payload says.
async fn work(lapse: Lapse<u32>) -> Result<Done, Failure> {
    tokio::time::sleep(ms(u64::from(*lapse.payload()))).await;
    Ok(Done)
}

/// So many timers that are due after these times, and take so long.
async fn arm(bed: &TestBed, topic: &Topic<u32>, after: impl Iterator<Item = Duration> + Send, takes: u32) {
    let arms = after.enumerate().map(|(number, after)| {
        let id = format!("{}-{number}", after.as_micros());
        NewArm::new([id], after, takes)
    });
    for armed in bed.schedule().arm_many(topic, arms).await.expect("an answer") {
        assert!(armed.expect("it can be armed").is_armed());
    }
}

/// A thousand timers of each priority that are due at once, for a listener with four places; all runs.
async fn all_at_once(
    partitions: u32,
    build: impl FnOnce(ListenerBuilder) -> ListenerBuilder,
) -> Vec<HandlerRun> {
    let bed = TestBed::counting();
    let topics = ALL.map(|(name, priority)| topic(name).priority(priority).partitions(partitions));
    for topic in &topics {
        arm(&bed, topic, (0..EACH).map(|number| Duration::from_micros(number as u64)), 10).await;
    }
    bed.advance(secs(2)).await;
    let _listening = bed
        .listen(|listener| {
            build(topics.into_iter().fold(listener, |listener, topic| listener.on(topic, work)))
        })
        .await
        .expect("it can listen");
    bed.until_finished().await;
    bed.all_runs()
}

/// How many attempts of each topic have begun when the last of this one begins.
fn begun_with_the_last_of(runs: &[HandlerRun], topic: usize) -> [usize; 3] {
    let last = runs.iter().rposition(|run| run.topic == ALL[topic].0).expect("some ran");
    ALL.map(|(name, _)| runs[..=last].iter().filter(|run| run.topic == name).count())
}

/// From the first start to the last end no place was ever free, but the one that each topic keeps that has nothing
/// more to do. All take 10 ms.
fn assert_all_places_were_used(runs: &[HandlerRun]) {
    let begun = |topic| begun_with_the_last_of(runs, topic).iter().sum::<usize>();
    let (first, second) = (begun(0), begun(1));
    let places = [(first, PLACES), (second - first, PLACES - 1), (runs.len() - second, PLACES - 2)];
    let least: f64 = places.iter().map(|(count, places)| 0.010 * *count as f64 / *places as f64).sum();
    let ended = runs.iter().filter_map(|run| run.ended).max().expect("all ended");
    let took = (ended - runs[0].began).as_secs_f64();
    assert!((least - 0.01..least + 0.1).contains(&took), "{took} s, where {least} s are enough");
}

fn assert_within(part: usize, of: usize, weight: f64) {
    let share = part as f64 / of as f64 / weight;
    assert!((0.9..=1.1).contains(&share), "{part} of {of}: {share} of its share");
}

#[tokio::test(start_paused = true)]
async fn while_all_have_work_their_shares_are_by_weight_and_afterwards_all_places_are_used() {
    for partitions in [1, 4] {
        let runs = all_at_once(partitions, |listener| listener.concurrency(PLACES)).await;
        let begun = begun_with_the_last_of(&runs, 0);
        let all = begun.iter().sum();
        for (part, weight) in begun.into_iter().zip([0.6, 0.3, 0.1]) {
            assert_within(part, all, weight);
        }
        let [_, normal, low] = begun_with_the_last_of(&runs, 1);
        assert_within(low - begun[2], normal + low - begun[1] - begun[2], 0.25);
        assert_all_places_were_used(&runs);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_strict_ends_with_the_high_before_it_begins_with_the_low_but_for_the_reserved_place() {
    for partitions in [1, 4] {
        let strict = |listener: ListenerBuilder| listener.concurrency(PLACES).strict_priorities();
        let runs = all_at_once(partitions, strict).await;
        let [high, normal, low] = begun_with_the_last_of(&runs, 0);
        assert_eq!(high, EACH);
        assert!(normal <= 1 && low <= 1, "{normal} and {low} of those who have to wait");
        let [_, normal, low] = begun_with_the_last_of(&runs, 1);
        assert_eq!(normal, EACH);
        assert!(low <= 1, "{low}");
        assert_all_places_were_used(&runs);
    }
}

/// Timers of all topics that are due at once, and one of them has many more than that, and ever more.
async fn p99_beside_a_flood(flood: bool) -> Duration {
    let bed = TestBed::counting();
    let names = (0..10).map(|number| format!("t{number}"));
    let topics: Vec<_> = names.map(|name| topic(&name)).collect();
    for second in 1..=5 {
        for topic in &topics[1..] {
            arm(&bed, topic, std::iter::repeat_n(secs(second), 10), 20).await;
        }
    }
    if flood {
        arm(&bed, &topics[0], (500..5500).map(ms), 20).await;
    }
    let all = topics.clone();
    let _listening = bed
        .listen(|listener| {
            all.into_iter().fold(listener.concurrency(20), |listener, topic| listener.on(topic, work))
        })
        .await
        .expect("it can listen");
    bed.until_finished().await;
    let runs = bed.all_runs().into_iter().filter(|run| run.topic != topics[0].name());
    let mut late: Vec<_> = runs.map(|run| run.lateness).collect();
    late.sort();
    assert_eq!(late.len(), 450);
    late[late.len() * 99 / 100]
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_grows_a_hundred_times_faster_makes_the_others_less_than_twice_as_late() {
    let (alone, beside) = (p99_beside_a_flood(false).await, p99_beside_a_flood(true).await);
    assert!(alone >= ms(60), "{alone:?}: they wait for each other");
    assert!(beside <= alone * 2, "{beside:?} beside the flood, {alone:?} without it");
}

#[tokio::test(start_paused = true)]
async fn what_is_paused_holds_no_place_back_however_much_of_it_is_due() {
    let bed = TestBed::counting();
    let [high, low] =
        [("high", Priority::High), ("low", Priority::Low)].map(|(name, first)| topic(name).priority(first));
    for topic in [&high, &low] {
        arm(&bed, topic, std::iter::repeat_n(ms(100), 200), 10).await;
    }
    let (first, second) = (high.clone(), low.clone());
    let listen = |listener: ListenerBuilder| {
        listener.concurrency(PLACES).strict_priorities().on(first, work).on(second, work)
    };
    let _listening = bed.listen(listen).await.expect("it can listen");
    bed.until(|runs| runs.len() >= 100).await;
    assert!(bed.runs(&low).len() <= 1);
    bed.schedule().pause(&high, "").await.expect("it can be paused");
    bed.advance(secs(2)).await;
    assert_eq!(bed.runs(&low).len(), 200);
    assert!(bed.runs(&high).len() < 110);
    bed.schedule().resume(&high).await.expect("it can be resumed");
    bed.until_finished().await;
    assert_eq!(bed.runs(&high).len(), 200);
}

#[tokio::test(start_paused = true)]
async fn who_cannot_claim_holds_no_place_back() {
    for fault in [CallFault::Refused("LOADING"), CallFault::Unanswered] {
        let bed = TestBed::counting();
        let topics = ALL.map(|(name, priority)| topic(name).priority(priority));
        for topic in &topics {
            arm(&bed, topic, std::iter::repeat_n(ms(100), 100), 10).await;
        }
        let strict = |listener: ListenerBuilder| listener.concurrency(PLACES).strict_priorities();
        let listen =
            |listener| topics.into_iter().fold(strict(listener), |listener, topic| listener.on(topic, work));
        let _listening = bed.listen(listen).await.expect("it can listen");
        bed.until(|runs| runs.len() >= 50).await;
        bed.calls().fail("claim", fault, 7);
        bed.until_finished().await;
        assert_eq!(bed.all_runs().len(), 300);
    }
}

#[test]
fn a_strict_order_of_equals_is_accepted_and_said() {
    let said = |priorities: &[Priority]| {
        let (_guard, log) = log();
        let builder = Listener::builder("redis://127.0.0.1/").strict_priorities();
        let add = |builder: ListenerBuilder, (number, priority): (usize, &Priority)| {
            builder.on(topic(&format!("t{number}")).priority(*priority), succeed)
        };
        let _listener = priorities.iter().enumerate().fold(builder, add).build().expect("it is accepted");
        log.lines().concat()
    };
    for equal in [&[Priority::Normal][..], &[Priority::High], &[Priority::Low; 3]] {
        assert!(said(equal).contains("strict priorities change nothing"), "{}", said(equal));
    }
    assert_eq!(said(&[Priority::High, Priority::Normal, Priority::High]), "");
}

#[test]
fn two_topics_that_share_a_pattern_are_refused_whatever_their_priorities() {
    let build = |other: &str, strict| {
        let [one, other] = [("one", "a:{id}", Priority::High), ("other", other, Priority::Low)]
            .map(|(name, pattern, priority)| Topic::<u32>::named(name, pattern).unwrap().priority(priority));
        let builder = Listener::builder("redis://127.0.0.1/").on(one, succeed).on(other, succeed);
        if strict { builder.strict_priorities().build() } else { builder.build() }
    };
    for strict in [false, true] {
        for pattern in ["a:{id}", "a:{number}"] {
            let refused = build(pattern, strict).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Conflict);
            assert!(
                refused.to_string().contains("a:{id}") && refused.to_string().contains(pattern),
                "{refused}"
            );
        }
        build("b:{id}", strict).expect("these do not");
    }
}
