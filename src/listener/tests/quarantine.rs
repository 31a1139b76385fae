//! Timers that lost two leases.

use crate::error::ErrorKind;
use crate::lapse::LapseSource;
use crate::listener::tests::{
    arm, arm_all, bed_with, fail, listen, ms, put_raw, secs, stats, stuck, succeed, take_time, topic,
};
use crate::testing::{Fault, TestBed};
use crate::wire::{DeadReason, Scan, State};

/// Timers that have lost so many leases.
async fn arm_after_losses(bed: &TestBed, ids: &[&str], lost: u8, payload: u32) {
    for id in ids {
        arm(bed, id, secs(1), payload).await;
        let state = State { lost, ..State::waiting(1) }.encode();
        put_raw(bed, Scan::States, format!("a:{id}").as_bytes(), Some(state));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_in_quarantine_runs_one_after_the_other_and_the_others_beside_it() {
    let (bed, listening) = bed_with(topic(), take_time).await;
    arm_after_losses(&bed, &["x", "y"], 2, 10).await;
    arm_all(&bed, &["1", "2"], 10).await;
    bed.pass(secs(40)).await;
    let runs = bed.all_runs();
    let began = |key: &str| runs.iter().find(|run| run.key == key.as_bytes()).map(|run| run.began);
    assert_eq!((began("a:1"), began("a:2")), (Some(secs(1)), Some(secs(1))));
    let (first, second) = (began("a:x").min(began("a:y")).unwrap(), began("a:x").max(began("a:y")).unwrap());
    assert!(first < secs(1) + ms(20), "{runs:#?}");
    assert!(second >= first + secs(10) && second < first + secs(11), "{runs:#?}");
    assert_eq!((stats(&listening).handled, stats(&listening).redelivered), (4, 2));
}

#[tokio::test(start_paused = true)]
async fn a_pill_is_buried_after_two_leases_lost_with_others_and_two_alone() {
    let bed = TestBed::new();
    arm(&bed, "pill", secs(1), 0).await;
    for run in 1..=4 {
        let victim = listen(&bed, topic(), stuck).await;
        bed.until(|runs| runs.len() == run).await;
        victim.crash().await;
    }
    let last = listen(&bed, topic(), succeed).await;
    bed.until_finished().await;
    let letters = bed.schedule().dead_letters(&topic()).page(9).await.unwrap();
    assert_eq!((letters.len(), letters[0].reason), (1, DeadReason::LostLeases));
    assert_eq!((bed.all_runs().len(), stats(&last).dead), (4, 1));
    let found: Vec<_> = bed.all_runs().iter().map(|run| run.source).collect();
    assert_eq!(found[2..], [LapseSource::Timer; 2], "from the quarantine");
}

#[tokio::test(start_paused = true)]
async fn a_refused_claim_from_quarantine_is_made_again_but_not_in_a_hurry() {
    let (bed, _) = bed_with(topic(), take_time).await;
    arm_after_losses(&bed, &["x", "y"], 2, 5).await;
    bed.pass(secs(2)).await;
    assert_eq!(bed.all_runs().len(), 1, "the other waits for its end");
    let calls = bed.calls();
    let before = calls.made("claim").len();
    calls.fail("claim", Fault::Refused(ErrorKind::Unavailable), 1000);
    bed.pass(secs(20)).await;
    let made = calls.made("claim").len() - before;
    assert!((10..=60).contains(&made), "{made} claims in sixteen seconds");
    calls.heal();
    bed.pass(secs(3)).await;
    assert_eq!(bed.all_runs().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_next_in_quarantine_waits_until_the_end_of_the_last_is_settled_but_not_for_ever() {
    for (fails, waits) in [(0, ms(0)..ms(1)), (1, ms(5)..ms(100)), (1000, secs(1)..ms(1100))] {
        let (bed, _) = bed_with(topic(), succeed).await;
        arm_after_losses(&bed, &["x", "y"], 2, 0).await;
        bed.calls().fail("ack", Fault::Refused(ErrorKind::Unavailable), fails);
        bed.pass(secs(5)).await;
        let runs = bed.all_runs();
        let apart = runs[1].began - runs[0].began;
        assert!(waits.contains(&apart), "{apart:?}, with {fails} refusals");
    }
}

#[tokio::test(start_paused = true)]
async fn what_fails_in_quarantine_and_keeps_its_lease_leaves_it() {
    let (bed, listening) = bed_with(topic(), fail).await;
    arm_after_losses(&bed, &["x"], 3, 0).await;
    bed.pass(secs(30)).await;
    let runs = bed.all_runs();
    let found: Vec<_> = runs.iter().map(|run| (run.attempt, run.redelivered)).collect();
    assert_eq!(found, [(1, true), (2, false), (3, false)]);
    assert_eq!((stats(&listening).redelivered, stats(&listening).failed), (1, 3));
}
