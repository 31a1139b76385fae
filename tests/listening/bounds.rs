//! P11: bounds hold where they are used, not only in the parts that keep them.

use super::{ms, secs, stats, succeed, topic};
use keylapse::{Attached, Done, Expired, Failure, Lapse, Listener, NewArm, Topic};
use keylapse_testing::{RunningListener, TestBed};
use keylapse_testserver::CallFault;

/// Ends that may be without an answer before nothing more is claimed; and timers in one call.
const FULL: usize = 4000;
const BATCH: usize = 1000;

fn wide() -> Topic<u32> {
    topic().concurrency(100_000)
}

/// A listener that may run all of them at a time.
async fn listen(bed: &TestBed) -> RunningListener {
    bed.listen(|listener| listener.on(wide(), succeed).concurrency(100_000)).await.expect("it can listen")
}

/// So many timers that are due in so many seconds.
async fn arm(bed: &TestBed, count: usize, after: u64) {
    let arms = (0..count).map(|number| NewArm::new([format!("{after}-{number}")], secs(after), 0));
    let armed = bed.schedule().arm_many(&wide(), arms).await.expect("an answer");
    assert!(armed.iter().all(|armed| armed.as_ref().is_ok_and(keylapse::ArmResult::is_armed)));
}

/// As each topic that runs nothing keeps one of them.
#[test]
fn as_many_topics_as_attempts_are_worth_a_warning() {
    let warned = |topics: usize, concurrency| {
        let (_guard, log) = crate::listening::log::log();
        let builder = Listener::builder("redis://127.0.0.1/").concurrency(concurrency);
        let topic = |number| Topic::<u32>::new(&format!("a{number}:{{id}}")).unwrap();
        let builder = (0..topics).fold(builder, |builder, number| builder.on(topic(number), succeed));
        let _listener = builder.build().unwrap();
        log.lines().len()
    };
    assert_eq!((warned(10, 10), warned(10, 2), warned(10, 11)), (1, 1, 0));
    assert_eq!((warned(1, 1), warned(2, 1000)), (0, 0), "who has one topic may want one attempt at a time");
}

#[tokio::test(start_paused = true)]
async fn nothing_more_is_claimed_while_thousands_of_ends_have_no_answer() {
    let bed = TestBed::counting();
    let listening = listen(&bed).await;
    arm(&bed, FULL, 1).await;
    arm(&bed, BATCH, 3).await;
    bed.calls().fail("ack", CallFault::Refused("LOADING"), 1000);
    bed.advance(secs(5)).await;
    assert_eq!((stats(&listening).claimed, stats(&listening).handled), (FULL as u64, FULL as u64));
    bed.calls().heal();
    bed.advance(secs(5)).await;
    assert_eq!(stats(&listening).handled, (FULL + BATCH) as u64);
}

#[tokio::test(start_paused = true)]
async fn ends_that_have_piled_up_are_settled_a_thousand_at_a_time() {
    let bed = TestBed::counting();
    let _listening = listen(&bed).await;
    arm(&bed, FULL, 1).await;
    bed.calls().fail("ack", CallFault::Refused("LOADING"), 1000);
    bed.advance(secs(5)).await;
    let before = bed.calls().made("ack").len();
    bed.calls().heal();
    bed.advance(secs(5)).await;
    let made = bed.calls().made("ack").len() - before;
    assert!(made >= FULL / BATCH, "{made} calls for {FULL} ends");
    bed.until_finished().await;
}

/// 2.4 MB of payloads, where a call has room for one.
#[tokio::test(start_paused = true)]
async fn arms_and_claims_are_bounded_by_their_bytes_too() {
    let bed = TestBed::counting();
    let topic = Topic::<String>::new("b:{id}").unwrap();
    let payload = "x".repeat(60_000);
    let arms = (0..40).map(|number| NewArm::new([number.to_string()], secs(1), payload.clone()));
    bed.schedule().arm_many(&topic, arms).await.expect("an answer");
    let made = bed.calls().made("arm").len();
    assert!((3..=5).contains(&made), "armed in {made} calls");
    let handler = async |_: Lapse<String>| Ok::<_, Failure>(Done);
    let listening = bed.listen(|listener| listener.on(topic, handler)).await.expect("it can listen");
    bed.advance(secs(1) + ms(100)).await;
    let stats = stats(&listening);
    let claims = stats.claims - stats.empty_claims;
    assert_eq!(stats.handled, 40);
    assert!((3..=5).contains(&claims), "claimed in {claims} calls");
}

#[test]
fn settings_at_their_bounds_are_accepted() {
    let builder = || keylapse::Listener::builder("redis://127.0.0.1:1/");
    for (number, topic) in [
        topic().partitions(1).max_attempts(1).concurrency(1).timeout(ms(1)).dead_letters(1, ms(1)),
        topic().partitions(1024).lease(secs(86_400)).lookahead(secs(1)).payload_limit(8 << 20),
        topic().lease(ms(300)).lookahead(ms(99)),
    ]
    .into_iter()
    .enumerate()
    {
        builder().on(topic, succeed).build().unwrap_or_else(|error| panic!("{number}: {error}"));
    }
    let attached = Attached::new(topic()).keep_values(8 << 20).cap(1).scan_rate(1).scan_every(ms(1));
    let handler = async |_: Lapse<Expired<u32>>| Ok::<_, Failure>(Done);
    builder().attach(attached, handler).concurrency(1).build().expect("all of it can work");
}
