//! Timers that should have ended and have not are counted by their first deadlines, whatever they wait for.

use crate::model::rig::{LEASE, Rig, dead, ms, retry, snooze};
use keylapse::Rescheduled;
use keylapse_wire::time::WireWhen;
use keylapse_wire::{AttemptEnd, LeaseRef, RepairTarget};

on_each_server! {
    what_ends_at_its_first_attempt_is_written_nowhere_else,
    a_retry_counts_from_its_first_deadline_until_it_has_ended,
    each_end_of_a_retry_takes_it_out,
    a_snooze_counts,
    a_retry_that_is_due_counts_once,
    attempts_whose_listener_was_killed_count_once,
    a_renewed_retry_counts_once,
    what_is_handed_back_counts_as_before,
    what_is_in_quarantine_counts,
    what_a_pause_holds_counts,
    another_arming_counts_from_its_own_deadline,
    a_retry_that_is_moved_counts_from_its_first_deadline,
    a_retry_that_an_earlier_release_has_ended_is_taken_out_by_the_repair,
    a_retry_that_an_earlier_release_has_made_is_put_in_by_the_repair,
}

const NOTHING: (u64, Option<u64>) = (0, None);

/// Arms keys for now, and ends their first attempts so.
async fn fail<const N: usize>(rig: &mut Rig, keys: [&str; N], end: AttemptEnd) -> Vec<LeaseRef> {
    rig.arm_due(keys).await;
    let held = rig.claim().await.held();
    for one in &held {
        rig.end(one, end.clone()).await;
    }
    rig.pass(ms(1)).await;
    held
}

async fn tidy(rig: &Rig, what: RepairTarget) -> u64 {
    rig.repair(what).await.expect("it can be tidied")
}

async fn is_empty(rig: &Rig) -> bool {
    !rig.exists(rig.at.key("tried")).await
}

async fn what_ends_at_its_first_attempt_is_written_nowhere_else(rig: &mut Rig) {
    rig.arm_due(["a", "b"]).await;
    assert_eq!(rig.undelivered().await, NOTHING, "their millisecond has just begun");
    rig.pass(ms(1)).await;
    assert_eq!(rig.undelivered().await, (2, Some(1)), "nobody has taken them yet");
    let held = rig.claim().await.held();
    assert_eq!(rig.undelivered().await, NOTHING, "they run for the first time");
    assert!(is_empty(rig).await);
    rig.ack(&held).await;
    assert!(is_empty(rig).await && rig.undelivered().await == NOTHING);
}

async fn a_retry_counts_from_its_first_deadline_until_it_has_ended(rig: &mut Rig) {
    fail(rig, ["a"], retry(60_000)).await;
    fail(rig, ["b"], retry(500)).await;
    assert_eq!(rig.undelivered().await, (2, Some(3)));
    rig.pass(ms(500)).await;
    let held = rig.claim().await;
    assert_eq!(held.keys(), ["b"]);
    assert_eq!(rig.undelivered().await, (2, Some(503)), "its second attempt runs");
    rig.ack(&held.held()).await;
    assert_eq!(rig.undelivered().await, (1, Some(503)));
}

async fn each_end_of_a_retry_takes_it_out(rig: &mut Rig) {
    let again = AttemptEnd::Again { delay: 5, arming: rig.ids.arming() };
    for end in [None, Some(dead()), Some(again)] {
        fail(rig, ["a"], retry(0)).await;
        let held = rig.claim().await.one();
        match end {
            None => drop(rig.ack(&[held]).await),
            Some(end) => drop(rig.end(&held, end).await),
        }
        assert!(is_empty(rig).await);
        rig.cancel("a").await;
    }
    fail(rig, ["a"], retry(9)).await;
    rig.cancel("a").await;
    assert!(is_empty(rig).await && rig.undelivered().await == NOTHING);
}

async fn a_snooze_counts(rig: &mut Rig) {
    fail(rig, ["a"], snooze(3_600_000)).await;
    assert_eq!(rig.undelivered().await, (1, Some(1)));
}

async fn a_retry_that_is_due_counts_once(rig: &mut Rig) {
    fail(rig, ["a", "b"], retry(5)).await;
    rig.arm_in("c", 7).await;
    rig.pass(ms(6)).await;
    assert_eq!(rig.undelivered().await, (2, Some(7)), "two retries");
    rig.pass(ms(5)).await;
    assert_eq!(rig.undelivered().await, (3, Some(12)), "and a first attempt");
}

async fn attempts_whose_listener_was_killed_count_once(rig: &mut Rig) {
    fail(rig, ["a"], retry(0)).await;
    rig.arm_due(["b"]).await;
    assert_eq!(rig.claim().await.held().len(), 2);
    assert_eq!(rig.undelivered().await.0, 1, "one of two runs for the first time");
    rig.pass(ms(LEASE + 1)).await;
    assert_eq!(rig.undelivered().await, (2, Some(LEASE + 3)));
    assert_eq!(rig.claim().await.held().len(), 2);
    assert_eq!(rig.undelivered().await, (2, Some(LEASE + 3)), "both have lost a lease");
}

async fn a_renewed_retry_counts_once(rig: &mut Rig) {
    fail(rig, ["a"], retry(0)).await;
    let held = rig.claim().await.one();
    rig.pass(ms(LEASE - 1)).await;
    assert!(rig.renew(&held).await);
    rig.pass(ms(2)).await;
    assert_eq!(rig.undelivered().await.0, 1, "its first lease would be over");
    rig.pass(ms(LEASE)).await;
    assert_eq!(rig.undelivered().await.0, 1, "its second one is");
}

async fn what_is_handed_back_counts_as_before(rig: &mut Rig) {
    fail(rig, ["a"], retry(5)).await;
    rig.arm_in("b", 5).await;
    rig.pass(ms(7)).await;
    for held in rig.claim().await.held() {
        rig.end(&held, AttemptEnd::Release).await;
    }
    assert_eq!(rig.undelivered().await, (2, Some(8)));
}

async fn what_is_in_quarantine_counts(rig: &mut Rig) {
    rig.lose("a", 3).await;
    assert_eq!(rig.undelivered().await.0, 1);
    rig.pass(ms(LEASE)).await;
    let held = rig.claim_quarantined().await;
    assert_eq!(rig.undelivered().await.0, 1, "it runs, and has lost leases");
    rig.ack(&held.held()).await;
    assert!(is_empty(rig).await);
}

async fn what_a_pause_holds_counts(rig: &mut Rig) {
    fail(rig, ["a"], retry(5)).await;
    rig.store.pause(&rig.at, Some("a test")).await.expect("it can be paused");
    rig.arm_in("b", 5).await;
    rig.pass(ms(10)).await;
    assert!(rig.claim().await.is_empty());
    assert_eq!(rig.undelivered().await, (2, Some(11)));
}

async fn another_arming_counts_from_its_own_deadline(rig: &mut Rig) {
    fail(rig, ["a"], retry(9)).await;
    rig.arm_in("a", 5).await;
    assert!(is_empty(rig).await);
    rig.pass(ms(7)).await;
    assert_eq!(rig.undelivered().await, (1, Some(1)));
    rig.cancel("a").await;

    rig.lose("b", 2).await;
    assert!(rig.claim().await.is_empty(), "it waits in quarantine");
    assert_eq!(rig.undelivered().await.0, 1);
    rig.arm_in("b", 50).await;
    assert_eq!(rig.undelivered().await.0, 0, "it inherits the lost leases, and is not due");
    rig.pass(ms(52)).await;
    assert_eq!(rig.undelivered().await.0, 1);
}

async fn a_retry_that_is_moved_counts_from_its_first_deadline(rig: &mut Rig) {
    fail(rig, ["a"], retry(9)).await;
    let moved = rig.reschedule("a", WireWhen::In(0)).await;
    assert!(matches!(moved, Rescheduled::Rescheduled(_)), "{moved:?}");
    rig.pass(ms(3)).await;
    assert_eq!(rig.undelivered().await, (1, Some(4)));
}

async fn a_retry_that_an_earlier_release_has_ended_is_taken_out_by_the_repair(rig: &mut Rig) {
    fail(rig, ["a", "b"], retry(5)).await;
    rig.unindex(b"a").await;
    rig.put_raw(RepairTarget::Records, b"a", None).await;
    rig.put_raw(RepairTarget::States, b"a", None).await;
    assert_eq!(rig.undelivered().await.0, 2);
    assert_eq!(tidy(rig, RepairTarget::Tried).await, 2, "it stands there twice");
    assert_eq!(rig.undelivered().await.0, 1);
}

async fn a_retry_that_an_earlier_release_has_made_is_put_in_by_the_repair(rig: &mut Rig) {
    fail(rig, ["a"], retry(500)).await;
    rig.delete(&[rig.at.key("tried").to_owned()]).await;
    assert_eq!(rig.undelivered().await, NOTHING);
    assert_eq!(tidy(rig, RepairTarget::States).await, 1);
    assert_eq!(rig.undelivered().await, (1, Some(1)));
    assert_eq!(tidy(rig, RepairTarget::States).await, 0);
    rig.pass(ms(501)).await;
    let held = rig.claim().await.one();
    rig.end(&held, dead()).await;
    assert!(is_empty(rig).await);
}
