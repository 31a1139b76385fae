//! How leases are kept, and lost.

use crate::listening::{
    arm, bed_with, cancel, fail, listen, ms, one_timer, secs, stats, stuck, succeed, take_time, topic,
};
use keylapse::Cancelled;
use keylapse_testing::RunEnd;
use keylapse_testserver::CallFault;

#[tokio::test(start_paused = true)]
async fn a_lease_is_extended_every_third_of_it() {
    let (bed, listening) = one_timer(topic().timeout(secs(1000)), take_time, 301).await;
    bed.advance(secs(303)).await;
    assert!(bed.all_runs()[0].is_done());
    let renewed = bed.calls().made("renew");
    assert!((28..=31).contains(&renewed.len()), "{}", renewed.len());
    assert!(renewed.windows(2).all(|two| two[1] - two[0] == secs(10)), "{renewed:?}");
    assert_eq!((stats(&listening).lost_leases, stats(&listening).fenced), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_renewed_while_nothing_runs_or_ends_soon() {
    let (bed, _) = bed_with(topic(), take_time).await;
    for id in 0..20_u64 {
        arm(&bed, &id.to_string(), secs(1 + id), 1).await;
    }
    bed.advance(secs(30)).await;
    assert_eq!(bed.calls().made("renew"), []);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_renewed_is_given_up_before_its_lease_ends() {
    let (bed, listening) = one_timer(topic().timeout(secs(1000)), stuck, 0).await;
    bed.until(|runs| !runs.is_empty()).await;
    bed.calls().fail("renew", CallFault::Refused("LOADING"), 1000);
    bed.advance(secs(25)).await;
    assert_eq!((bed.all_runs()[0].end.clone(), stats(&listening).lost_leases), (None, 0));
    // At nine tenths of the lease, and a beat; the handler has a second to notice it.
    bed.advance(secs(1 + 5 + 1)).await;
    assert_eq!(bed.all_runs()[0].end, Some(RunEnd::Stopped));
    assert_eq!((stats(&listening).lost_leases, stats(&listening).fenced), (1, 1));
    assert_eq!(bed.calls().made("settle").len(), 0, "it is not ours to settle");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_renewed_at_last_is_kept() {
    let (bed, listening) = one_timer(topic().timeout(secs(1000)), take_time, 100).await;
    bed.advance(secs(2)).await;
    bed.calls().fail("renew", CallFault::Refused("LOADING"), 2);
    bed.advance(secs(100)).await;
    assert!(bed.all_runs()[0].is_done());
    assert_eq!((bed.all_runs().len(), stats(&listening).lost_leases), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_is_not_heard_is_noticed_by_the_next_renewal() {
    let (bed, listening) = one_timer(topic().timeout(secs(1000)), stuck, 0).await;
    bed.until(|runs| !runs.is_empty()).await;
    bed.notifications().lose();
    assert_eq!(cancel(&bed, "1").await, Cancelled::InFlight);
    bed.advance(secs(16)).await;
    assert_eq!(bed.all_runs()[0].end, Some(RunEnd::Stopped));
    assert_eq!((stats(&listening).lost_leases, stats(&listening).fenced), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_is_heard_stops_the_handler_within_a_second() {
    let (bed, listening) = one_timer(topic().timeout(secs(1000)), stuck, 0).await;
    bed.until(|runs| !runs.is_empty()).await;
    assert_eq!(cancel(&bed, "1").await, Cancelled::InFlight);
    bed.advance(ms(999)).await;
    assert_eq!(bed.all_runs()[0].end, None);
    bed.advance(ms(1)).await;
    assert_eq!(bed.all_runs()[0].end, Some(RunEnd::Stopped));
    assert_eq!((stats(&listening).lost_leases, stats(&listening).fenced), (0, 1));
}

/// The answer to a renewal says that a timer is gone which was settled on its way.
#[tokio::test(start_paused = true)]
async fn what_is_being_settled_is_no_lost_lease() {
    let (bed, listening) = one_timer(topic().timeout(secs(1000)), take_time, 9).await;
    bed.advance(secs(2)).await;
    // Acknowledged at 10 s, but the answer is lost, and so are those to its repeats.
    bed.calls().fail("ack", CallFault::Unanswered, 20);
    bed.advance(secs(30)).await;
    assert!(!bed.calls().made("renew").is_empty());
    assert_eq!((stats(&listening).lost_leases, stats(&listening).gone), (0, 0));
    assert_eq!((stats(&listening).handled, stats(&listening).fenced), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn what_ends_after_its_lease_was_lost_is_not_settled() {
    let (bed, listening) = one_timer(topic().timeout(secs(1000)), take_time, 20).await;
    bed.advance(ms(20_500)).await;
    assert_eq!(cancel(&bed, "1").await, Cancelled::InFlight);
    bed.advance(secs(10)).await;
    assert!(bed.all_runs()[0].is_done(), "it had the time to end");
    assert_eq!((stats(&listening).fenced, stats(&listening).handled), (1, 0));
    assert_eq!(bed.calls().made("ack"), []);
}

#[tokio::test(start_paused = true)]
async fn keeping_leases_is_worth_no_warning() {
    let (_guard, log) = crate::listening::log::log();
    let (bed, _) = one_timer(topic().timeout(secs(1000)), take_time, 100).await;
    bed.advance(secs(200)).await;
    assert_eq!(log.lines(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn attempts_that_lost_no_lease_are_no_recoveries() {
    let (bed, listening) = one_timer(topic(), fail, 0).await;
    bed.until_finished().await;
    assert_eq!((stats(&listening).redelivered, stats(&listening).failed), (0, 3));

    let (bed, first) = one_timer(topic(), stuck, 0).await;
    bed.until(|runs| !runs.is_empty()).await;
    first.crash().await;
    let second = listen(&bed, topic(), succeed).await;
    bed.until_finished().await;
    assert_eq!(stats(&second).redelivered, 1);
}
