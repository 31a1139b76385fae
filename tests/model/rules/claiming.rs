//! What a claim takes, and on whose behalf.

use keylapse_wire::{Heads, Index};

use crate::model::rig::{Ids, LEASE, Rig, ms, retry};

on_each_server! {
    a_claim_takes_no_more_than_its_limit,
    a_claim_stops_at_its_bytes_but_takes_at_least_one,
    a_claim_says_what_is_due_next,
    what_is_claimed_is_not_claimed_again,
    a_live_lease_is_not_taken_within_the_lookahead,
    who_follows_leaves_what_has_just_come_due,
    a_paused_partition_gives_nothing_out_and_takes_timers,
    a_resumed_partition_gives_out_what_has_come_due,
    an_empty_claim_says_when_another_slot_took_the_last,
    who_takes_from_the_quarantine_is_nobodys_rival,
    of_those_who_follow_one_stands_by,
    a_standby_that_leads_at_last_is_none_any_longer,
    peek_reads_the_heads_of_several_partitions,
}

async fn arm_three(rig: &mut Rig) {
    rig.arm_due(["a", "b", "c"]).await;
}

async fn a_claim_takes_no_more_than_its_limit(rig: &mut Rig) {
    arm_three(rig).await;
    assert_eq!(rig.claim_with(|call| call.limit = 2).await.keys(), ["a", "b"]);
    assert_eq!(rig.claim_with(|call| call.limit = 2).await.keys(), ["c"]);
}

async fn a_claim_stops_at_its_bytes_but_takes_at_least_one(rig: &mut Rig) {
    arm_three(rig).await;
    // A record has 17 bytes and a payload of one.
    assert_eq!(rig.claim_with(|call| call.bytes = 1).await.keys(), ["a"]);
    assert_eq!(rig.claim_with(|call| call.bytes = 18).await.keys(), ["b"]);
    assert!(rig.claim_with(|call| call.bytes = 0).await.is_empty());
}

async fn a_claim_says_what_is_due_next(rig: &mut Rig) {
    let (_, far) = rig.arm_in("far", 500).await;
    arm_three(rig).await;
    assert_eq!(rig.claim().await.claimed.heads, Heads { due: Some(far.deadline), quarantine: None });
}

async fn what_is_claimed_is_not_claimed_again(rig: &mut Rig) {
    arm_three(rig).await;
    assert_eq!(rig.claim().await.keys().len(), 3);
    assert_eq!(rig.finds_nothing().await.due, Some(rig.now() + LEASE), "it is due again when the lease ends");
}

async fn a_live_lease_is_not_taken_within_the_lookahead(rig: &mut Rig) {
    arm_three(rig).await;
    let held = rig.claim_with(|call| call.lease_ms = 5).await.held();
    rig.pass(ms(4)).await;
    assert!(rig.claim_with(|call| call.lookahead_ms = 10).await.is_empty());
    rig.pass(ms(1)).await;
    assert_eq!(rig.claim_with(|call| call.lookahead_ms = 10).await.keys().len(), 3);
    assert_eq!(rig.ack(&held).await.gone, [0, 1, 2]);
}

async fn who_follows_leaves_what_has_just_come_due(rig: &mut Rig) {
    rig.arm_due(["a"]).await;
    let following = |call: &mut keylapse_wire::Claim| call.lookahead_ms = -13;
    assert!(rig.claim_with(following).await.is_empty());
    rig.pass(ms(13)).await;
    assert_eq!(rig.claim_with(following).await.keys(), ["a"]);
}

async fn a_paused_partition_gives_nothing_out_and_takes_timers(rig: &mut Rig) {
    let (_, held) = rig.run("running").await;
    assert_eq!(rig.store.pause(&rig.at, Some("maintenance")).await.expect("it pauses"), None);
    arm_three(rig).await;
    let taken = rig.claim().await;
    assert!(taken.is_empty());
    assert_eq!(taken.claimed.paused.as_deref(), Some("maintenance"));
    rig.end(&held, retry(0)).await;
    assert!(rig.look("running").await.is_some(), "what runs can still be settled");
}

async fn a_resumed_partition_gives_out_what_has_come_due(rig: &mut Rig) {
    rig.store.pause(&rig.at, Some("maintenance")).await.expect("it pauses");
    arm_three(rig).await;
    let before = rig.store.pause(&rig.at, None).await.expect("it resumes");
    assert_eq!(before.as_deref(), Some("maintenance"));
    assert_eq!(rig.claim().await.keys(), ["a", "b", "c"]);
}

async fn an_empty_claim_says_when_another_slot_took_the_last(rig: &mut Rig) {
    assert_eq!(rig.claim().await.claimed.other_claimed_at, None, "nobody has taken anything");
    arm_three(rig).await;
    let other = |call: &mut keylapse_wire::Claim| call.slot = Ids::slot(2);
    let then = rig.now();
    assert_eq!(rig.claim_with(other).await.claimed.other_claimed_at, None, "it took something itself");
    rig.pass(ms(5000)).await;
    assert_eq!(rig.claim().await.claimed.other_claimed_at, Some(then));
    assert_eq!(rig.claim_with(other).await.claimed.other_claimed_at, None, "it is the one");
    rig.store.release_claimer(&rig.at, Ids::slot(2)).await.expect("it closes");
    assert_eq!(rig.claim().await.claimed.other_claimed_at, None, "it is there no more");
}

async fn who_takes_from_the_quarantine_is_nobodys_rival(rig: &mut Rig) {
    rig.lose("pill", 2).await;
    rig.pass(ms(LEASE)).await;
    let in_slot = |slot, index| {
        move |call: &mut keylapse_wire::Claim| (call.slot, call.index) = (Ids::slot(slot), index)
    };
    rig.claim_with(in_slot(2, Index::Due)).await;
    let before = rig.claim_with(in_slot(3, Index::Due)).await.claimed.other_claimed_at;
    assert_eq!(rig.claim_with(in_slot(2, Index::Quarantine)).await.keys(), ["pill"]);
    assert_eq!(rig.claim_with(in_slot(3, Index::Due)).await.claimed.other_claimed_at, before);
}

/// Whether a follower that looks with this slot, and finds nothing, is told that another is the standby.
async fn has_standby(rig: &mut Rig, slot: u64) -> bool {
    let follow =
        move |call: &mut keylapse_wire::Claim| (call.slot, call.lookahead_ms) = (Ids::slot(slot), -13);
    let taken = rig.claim_with(follow).await.claimed;
    assert!(taken.timers.is_empty());
    taken.standby
}

/// Three timers, which this slot takes.
async fn led_by(rig: &mut Rig, slot: u64) {
    arm_three(rig).await;
    rig.pass(ms(100)).await;
    assert_eq!(rig.claim_with(|call| call.slot = Ids::slot(slot)).await.keys(), ["a", "b", "c"]);
}

async fn of_those_who_follow_one_stands_by(rig: &mut Rig) {
    assert!(!has_standby(rig, 2).await, "nobody leads, so nobody stands by");
    assert!(!has_standby(rig, 3).await);
    led_by(rig, 1).await;
    assert!(!has_standby(rig, 2).await);
    assert!(has_standby(rig, 3).await);
    assert!(!has_standby(rig, 2).await, "it is the one");
    rig.pass(ms(4000)).await;
    assert!(!has_standby(rig, 2).await);
    rig.pass(ms(4999)).await;
    assert!(has_standby(rig, 3).await, "it was here within five seconds");
    rig.pass(ms(1)).await;
    assert!(!has_standby(rig, 3).await, "it was not, and this one is from now on");
    assert!(has_standby(rig, 2).await);
}

async fn a_standby_that_leads_at_last_is_none_any_longer(rig: &mut Rig) {
    led_by(rig, 1).await;
    assert!(!has_standby(rig, 2).await);
    rig.arm_in("more", 0).await;
    rig.pass(ms(100)).await;
    let follow = |call: &mut keylapse_wire::Claim| (call.slot, call.lookahead_ms) = (Ids::slot(2), -13);
    assert_eq!(rig.claim_with(follow).await.keys(), ["more"]);
    assert!(!has_standby(rig, 3).await);
    assert!(has_standby(rig, 1).await);
}

async fn peek_reads_the_heads_of_several_partitions(rig: &mut Rig) {
    let (_, reply) = rig.arm_in("a", 10).await;
    let unknown = keylapse_wire::names::PartitionNames::new("keylapse", "unknown", 0, 1, false);
    let heads = rig.store.peek(&[unknown, rig.at.clone()]).await.expect("it can be read").1;
    assert_eq!(heads, [Heads::default(), Heads { due: Some(reply.deadline), quarantine: None }]);
}
