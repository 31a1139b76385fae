//! How ends are told, what follows, and what is counted.

use std::time::Duration;

use crate::listening::{
    arm, arm_all, arm_on, bed_with, cancel, fail, ms, one_timer, secs, stats, succeed, take_time, topic,
};
use keylapse::ArmResult;
use keylapse::Cancelled;
use keylapse::Lapse;
use keylapse::Topic;
use keylapse::handler::Handler;
use keylapse::{Done, Failure, Outcome};
use keylapse_testing::TestBed;
use keylapse_testserver::CallFault;

/// Snoozes once, then comes again, then is dropped: by the payload.
async fn moody(lapse: Lapse<u32>) -> Result<Outcome, Failure> {
    Ok(match *lapse.payload() {
        0 => Outcome::Done,
        1 => Outcome::Snooze(secs(5)),
        2 => Outcome::Again(secs(5)),
        3 => Outcome::Drop,
        _ => return Err(Failure::dead("no use")),
    })
}

/// The payload with which [`ending`] succeeds at once.
const SUCCEEDS: u32 = 7;

/// A handler that ends after a while: well, or in a failure.
fn ending(after: Duration, fails: bool) -> impl Handler<u32> {
    move |lapse: Lapse<u32>| async move {
        if *lapse.payload() == SUCCEEDS {
            return Ok(Done);
        }
        tokio::time::sleep(after).await;
        if fails { Err(Failure::retry("no")) } else { Ok(Done) }
    }
}

#[tokio::test(start_paused = true)]
async fn each_end_is_counted_by_its_kind() {
    let (bed, listening) = bed_with(topic(), moody).await;
    for payload in 0..=4 {
        arm(&bed, &payload.to_string(), secs(1), payload).await;
    }
    bed.advance(secs(2)).await;
    let one = stats(&listening);
    assert_eq!((one.handled, one.snoozed, one.again, one.dropped, one.dead), (2, 1, 1, 1, 1));
    assert_eq!((one.failed, one.retried, one.released, one.gone, one.unsettled), (1, 0, 0, 0, 0));

    let (bed, listening) = one_timer(topic(), fail, 0).await;
    bed.until_finished().await;
    let all = stats(&listening);
    assert_eq!((all.failed, all.retried, all.dead, all.handled), (3, 2, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_is_worth_a_warning() {
    let (_guard, log) = crate::listening::log::log();
    let (bed, _) = one_timer(topic(), moody, 4).await;
    bed.advance(secs(2)).await;
    let lines = log.lines();
    assert!(
        lines.len() == 1 && lines[0].contains("dead letter") && lines[0].contains("permanent"),
        "{lines:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn whatever_follows_has_its_trigger_key() {
    let (bed, listening) = bed_with(topic(), moody).await;
    let trigger = |id: &str| {
        let value = super::trigger(&bed, &format!("a:{id}"));
        value.map(|value| String::from_utf8_lossy(&value).into_owned())
    };
    for payload in 0..=3 {
        arm(&bed, &payload.to_string(), secs(1), payload).await;
    }
    bed.advance(secs(2)).await;
    assert_eq!((trigger("0"), trigger("3")), (None, None));
    assert_eq!(trigger("1").as_deref(), Some("1"), "snoozed");
    assert_eq!(trigger("2").as_deref(), Some("1"), "again");

    let (bed, _) = one_timer(topic(), fail, 0).await;
    bed.advance(secs(2)).await;
    assert_eq!(super::trigger(&bed, "a:1").as_deref(), Some(&b"2"[..]), "retried");
    assert_eq!(stats(&listening).taken_markers, 0);
}

#[tokio::test(start_paused = true)]
async fn a_topic_without_trigger_keys_sets_none_and_one_with_them_only_where_something_follows() {
    for (topic, handler_fails, armed, follows) in [
        (topic(), true, true, true),
        (topic(), false, true, false),
        (topic().marker_keys(false), true, false, false),
        (topic().marker_keys(false), false, false, false),
    ] {
        let (bed, _) = bed_with(topic.clone(), ending(secs(0), handler_fails)).await;
        arm_on(&bed, &topic, "1", secs(1), 0).await;
        assert_eq!(super::trigger(&bed, "a:1").is_some(), armed);
        bed.advance(secs(2)).await;
        assert_eq!(super::trigger(&bed, "a:1").is_some(), follows);
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_that_somebody_else_has_taken_is_counted_and_the_retry_runs() {
    let (bed, listening) = one_timer(topic(), fail, 0).await;
    bed.advance(ms(900)).await;
    bed.command(["SET", "a:1", "theirs"]);
    bed.advance(secs(20)).await;
    assert_eq!((bed.all_runs().len(), stats(&listening).taken_markers), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn what_was_armed_over_a_running_attempt_follows_it_with_its_trigger_key() {
    // Over an attempt that is done, and over one that would be retried.
    for (handler_fails, superseded) in [(false, 0), (true, 1)] {
        let (bed, listening) = one_timer(topic(), ending(secs(5), handler_fails), 0).await;
        bed.advance(secs(2)).await;
        let armed = bed.schedule().arm(&topic(), ["1"], secs(60), &SUCCEEDS).await.unwrap();
        assert!(matches!(armed, ArmResult::AfterRunning(_)));
        bed.advance(secs(10)).await;
        assert!(super::trigger(&bed, "a:1").is_some());
        bed.advance(secs(60)).await;
        let began: Vec<_> = bed.all_runs().iter().map(|run| (run.attempt, run.began)).collect();
        assert_eq!(began, [(1, secs(1)), (1, secs(62))]);
        let stats = stats(&listening);
        assert_eq!((stats.superseded, stats.retried, stats.gone), (superseded, 0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn the_repeat_of_an_unanswered_end_finds_its_own_work_done() {
    // Refused once before, or between, that is no reason to count it as lost.
    for faults in [&[CallFault::Unanswered][..], &[CallFault::Unanswered, CallFault::Refused("LOADING")]] {
        for (call, handler_fails) in [("ack", false), ("settle", true)] {
            let (bed, listening) = one_timer(topic(), ending(secs(0), handler_fails), 0).await;
            faults.iter().for_each(|fault| bed.calls().fail(call, *fault, 1));
            bed.advance(secs(5)).await;
            let stats = stats(&listening);
            assert_eq!((stats.gone, stats.unsettled, bed.all_runs().len()), (0, 0, 1), "{call}");
            assert!(stats.settle_errors >= 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_that_comes_too_late_is_counted_and_worth_a_warning() {
    for (call, handler_fails) in [("ack", false), ("settle", true)] {
        let (_guard, log) = crate::listening::log::log();
        let (bed, listening) = one_timer(topic(), ending(secs(5), handler_fails), 0).await;
        bed.advance(secs(2)).await;
        bed.notifications().lose();
        assert_eq!(cancel(&bed, "1").await, Cancelled::InFlight);
        bed.advance(ms(3990)).await;
        // Refused at first: that was certainly not done, so the repeat is none.
        bed.calls().fail(call, CallFault::Refused("LOADING"), 1);
        bed.advance(secs(5)).await;
        assert_eq!((stats(&listening).gone, stats(&listening).settle_errors), (1, 1), "{call}");
        let warned = log.lines().iter().filter(|line| line.contains("ended after their lease")).count();
        assert_eq!(warned, usize::from(!handler_fails));
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_in_time_is_worth_no_warning() {
    let (_guard, log) = crate::listening::log::log();
    let (bed, _) = one_timer(topic(), fail, 0).await;
    bed.advance(secs(2)).await;
    bed.calls().fail("settle", CallFault::Unanswered, 1);
    bed.advance(secs(10)).await;
    assert_eq!(log.lines(), [""; 0], "that an answer was lost is no news");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_settled_is_counted_and_runs_again_when_its_lease_ends() {
    let (bed, listening) = bed_with(topic(), succeed).await;
    arm_all(&bed, &["1", "2"], 0).await;
    bed.calls().fail("ack", CallFault::Refused("ERR"), 1);
    bed.advance(secs(2)).await;
    let stats = stats(&listening);
    assert_eq!((stats.unsettled, stats.settle_errors), (2, 1), "an answer that no repeat will change");
    bed.until_finished().await;
    assert_eq!(bed.all_runs().len(), 4);
    assert!(bed.all_runs()[2].redelivered && bed.all_runs()[2].began <= secs(32));
}

#[tokio::test(start_paused = true)]
async fn each_reason_that_nothing_can_be_settled_is_counted_once() {
    let (bed, listening) = one_timer(topic(), succeed, 0).await;
    bed.calls().fail("ack", CallFault::Refused("LOADING"), 3);
    bed.calls().fail("ack", CallFault::Refused("NOPERM"), 3);
    bed.advance(secs(10)).await;
    let stats = stats(&listening);
    assert_eq!((stats.settle_errors, stats.unsettled, stats.gone), (2, 0, 0));
}

/// What no other partition can know of is said for each; a server that is away, once.
#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_is_one_piece_of_news_and_a_missing_right_one_for_each_partition() {
    for (code, warnings) in [("LOADING", 1), ("NOPERM", 2)] {
        let (_guard, log) = crate::listening::log::log();
        let bed = TestBed::counting();
        let other = Topic::<u32>::new("b:{id}").unwrap();
        bed.listen(|listener| listener.on(topic(), succeed).on(other.clone(), succeed)).await.unwrap();
        arm(&bed, "1", secs(1), 0).await;
        arm_on(&bed, &other, "1", secs(1), 0).await;
        bed.calls().fail("ack", CallFault::Refused(code), 6);
        bed.advance(secs(5)).await;
        let lines: Vec<_> = log.lines().into_iter().filter(|line| line.contains("cannot settle")).collect();
        assert_eq!(lines.len(), warnings, "{code}: {lines:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn ends_that_are_on_their_way_leave_the_places_to_others() {
    let (bed, _) = one_timer(topic().concurrency(1), take_time, 1).await;
    arm(&bed, "2", secs(1), 1).await;
    bed.calls().fail("ack", CallFault::Refused("LOADING"), 4);
    bed.advance(secs(4)).await;
    let began: Vec<_> = bed.all_runs().iter().map(|run| run.began).collect();
    assert_eq!(began, [secs(1), secs(2)]);
}
