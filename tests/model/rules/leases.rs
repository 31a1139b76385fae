//! One live attempt: tokens, leases, and what becomes of those that are lost.

use crate::model::rig::{ArmCode, LEASE, Rig, dead, letter_name, ms, retry, snooze};
use bytes::Bytes;
use keylapse::dead_letters::DeadReason;
use keylapse_wire::record::State;
use keylapse_wire::record::StoredDeadLetter;
use keylapse_wire::time::WireWhen;
use keylapse_wire::{AckReply, AttemptEnd, Index, QuarantineGroup, RepairTarget, SettleReply};

on_each_server! {
    a_lease_that_runs_out_makes_the_timer_due_again,
    a_renewed_lease_lasts_from_now_on,
    a_stale_token_changes_nothing,
    a_late_ack_counts_until_the_next_claim,
    a_late_settlement_counts_until_the_next_claim,
    one_lost_lease_is_bad_luck,
    the_second_lost_lease_puts_a_timer_in_quarantine,
    what_is_in_quarantine_is_claimed_from_the_quarantine_only,
    its_old_holder_may_settle_until_it_is_claimed_from_quarantine,
    five_lost_leases_make_a_dead_letter,
    what_is_in_quarantine_runs_in_groups_that_shrink_with_each_lost_lease,
    a_group_is_as_small_as_its_worst_member_needs_it,
    who_does_not_fit_into_the_group_is_waited_for,
    whoever_does_not_say_how_many_run_together_gets_one,
    what_is_in_quarantine_stays_there_while_its_lease_is_renewed,
    what_is_in_quarantine_stays_there_when_it_is_rescheduled,
    a_live_settlement_clears_lost_leases,
    a_release_keeps_lost_leases,
    arming_over_what_waits_in_quarantine_keeps_lost_leases,
    a_cancel_forgets_lost_leases,
    others_are_armed_as_ever_beside_what_is_in_quarantine,
}

async fn a_lease_that_runs_out_makes_the_timer_due_again(rig: &mut Rig) {
    rig.run("a").await;
    rig.pass(ms(LEASE - 1)).await;
    assert!(rig.claim().await.is_empty());
    rig.pass(ms(1)).await;
    assert_eq!(rig.claim().await.state().lost, 1);
}

async fn a_renewed_lease_lasts_from_now_on(rig: &mut Rig) {
    let (_, held) = rig.run("a").await;
    rig.pass(ms(LEASE - 1)).await;
    assert!(rig.renew(&held).await);
    rig.pass(ms(LEASE - 1)).await;
    assert!(rig.claim().await.is_empty());
    assert!(rig.renew(&held).await);
}

async fn a_stale_token_changes_nothing(rig: &mut Rig) {
    let (_, stale) = rig.run("a").await;
    rig.lose_leases().await;
    let live = rig.claim().await.one();
    let before = rig.look("a").await;
    assert_eq!(rig.ack(std::slice::from_ref(&stale)).await.gone, [0]);
    assert!(!rig.renew(&stale).await);
    let again = AttemptEnd::Again { delay: 0, arming: rig.ids.arming() };
    for end in [retry(0), snooze(0), again, dead(), AttemptEnd::Release] {
        assert_eq!(rig.end(&stale, end).await, SettleReply::Gone);
    }
    assert_eq!(rig.look("a").await, before);
    assert_eq!(rig.ack(&[live]).await, AckReply::default());
}

async fn a_late_ack_counts_until_the_next_claim(rig: &mut Rig) {
    let (_, held) = rig.run("a").await;
    rig.lose_leases().await;
    rig.lose_leases().await;
    assert_eq!(rig.ack(&[held]).await, AckReply::default());
    assert_eq!(rig.look("a").await, None);
}

async fn a_late_settlement_counts_until_the_next_claim(rig: &mut Rig) {
    let (timer, held) = rig.run("a").await;
    rig.lose_leases().await;
    let settled = rig.end(&held, retry(50)).await;
    assert_eq!(settled, SettleReply::Settled(Some((rig.ceil() + 50, timer.arming))));
    assert!(rig.claim().await.is_empty(), "it waits for its retry");
}

async fn one_lost_lease_is_bad_luck(rig: &mut Rig) {
    rig.lose("a", 1).await;
    rig.arm_due(["b"]).await;
    assert_eq!(rig.claim().await.keys(), ["a", "b"], "it runs with the others");
}

async fn the_second_lost_lease_puts_a_timer_in_quarantine(rig: &mut Rig) {
    rig.lose("a", 2).await;
    let heads = rig.finds_nothing().await;
    assert_eq!((heads.due, heads.quarantine), (None, Some(rig.now())));
    let look = rig.look("a").await.expect("it waits");
    assert!(look.quarantined);
    assert_eq!(rig.claim_quarantined().await.state().lost, 2);
}

async fn what_is_in_quarantine_is_claimed_from_the_quarantine_only(rig: &mut Rig) {
    rig.quarantine("a").await;
    assert!(rig.claim().await.is_empty());
    let taken = rig.claim_with(|call| (call.index, call.limit) = (Index::Quarantine, 1)).await;
    rig.ack(&[taken.one()]).await;
    assert_eq!(rig.look("a").await, None);
    assert_eq!(rig.claim_quarantined().await.claimed.heads.quarantine, None, "it has left its index");
}

async fn its_old_holder_may_settle_until_it_is_claimed_from_quarantine(rig: &mut Rig) {
    rig.arm_due(["a"]).await;
    rig.claim().await;
    rig.lose_leases().await;
    let second = rig.claim().await.one();
    rig.lose_leases().await;
    rig.claim().await;
    assert!(rig.look("a").await.expect("it waits").quarantined);
    assert!(!rig.renew(&second).await, "its handler is told to stop");
    assert_eq!(rig.ack(&[second]).await, AckReply::default());
    assert!(rig.claim_quarantined().await.is_empty());
}

/// Claims from the quarantine, beside so many that run already.
async fn claim_group(rig: &mut Rig, running: usize) -> Vec<Bytes> {
    let group = QuarantineGroup { running, sizes: [4, 2, 1] };
    rig.claim_with(|call| (call.index, call.group) = (Index::Quarantine, group)).await.keys()
}

/// Timers in quarantine, in this order, that have lost so many leases.
async fn suspect(rig: &mut Rig, keys: &[(&str, u8)]) {
    for (key, lost) in keys {
        rig.arm_in(key, LEASE).await;
        rig.unindex(key.as_bytes()).await;
        let state = State { lost: *lost, ..State::waiting(1) }.encode();
        rig.put_raw(RepairTarget::States, key.as_bytes(), Some(&state)).await;
        let _ = rig.reschedule(key, WireWhen::In(0)).await;
        rig.pass(ms(1)).await;
    }
}

async fn what_is_in_quarantine_runs_in_groups_that_shrink_with_each_lost_lease(rig: &mut Rig) {
    let keys = ["a", "b", "c", "d", "e"];
    suspect(rig, &keys.map(|key| (key, 2))).await;
    assert_eq!(claim_group(rig, 0).await, keys[..4]);
    assert_eq!(claim_group(rig, 4).await.len(), 0);
    assert_eq!(claim_group(rig, 3).await, keys[4..]);
    rig.lose_leases().await;
    assert_eq!(claim_group(rig, 0).await.len(), 2);
    assert_eq!(claim_group(rig, 0).await.len(), 2, "of another listener");
    rig.lose_leases().await;
    assert_eq!(claim_group(rig, 0).await, ["e"], "those that come next are to be alone");
    assert_eq!(claim_group(rig, 0).await.len(), 1);
    assert_eq!(claim_group(rig, 1).await.len(), 0);
}

async fn a_group_is_as_small_as_its_worst_member_needs_it(rig: &mut Rig) {
    suspect(rig, &[("a", 2), ("b", 3), ("c", 2), ("d", 4)]).await;
    assert_eq!(claim_group(rig, 0).await, ["a", "b"]);
    assert_eq!(claim_group(rig, 1).await, ["c"]);
}

/// Or those that need a small group would wait for ever behind those that do not.
async fn who_does_not_fit_into_the_group_is_waited_for(rig: &mut Rig) {
    suspect(rig, &[("a", 2), ("b", 4), ("c", 2)]).await;
    assert_eq!(claim_group(rig, 0).await, ["a"]);
    assert!(claim_group(rig, 1).await.is_empty());
    assert_eq!(claim_group(rig, 0).await, ["b"]);
    assert_eq!(claim_group(rig, 0).await, ["c"], "in another listener");
}

async fn whoever_does_not_say_how_many_run_together_gets_one(rig: &mut Rig) {
    suspect(rig, &[("a", 2), ("b", 2)]).await;
    assert_eq!(rig.claim_quarantined().await.keys(), ["a"]);
}

async fn five_lost_leases_make_a_dead_letter(rig: &mut Rig) {
    let [timer] = rig.arm_due(["a"]).await;
    let mut last = None;
    for lost in 0..5 {
        let taken = rig.claim_next().await;
        assert_eq!(taken.state().lost, lost);
        last = Some(taken.call.token);
        rig.lose_leases().await;
    }
    let burial = rig.claim_quarantined().await;
    assert_eq!((burial.claimed.dead_lettered, burial.is_empty()), (1, true));
    assert_eq!(rig.look("a").await, None);

    let letters = rig.letters().await;
    assert_eq!(letters[0].id, letter_name(timer.arming, rig.now(), b"a"));
    let letter = StoredDeadLetter::decode(letters[0].letter.clone()).expect("it can be read");
    assert_eq!((letter.reason, letter.died), (DeadReason::LostLeases, rig.now()));
    let state = State::decode(letter.state).expect("it can be read");
    assert_eq!((state.lost, Some(state.token)), (5, last));
    assert_eq!(letter.record.slice(17..), timer.payload);
}

async fn what_is_in_quarantine_stays_there_while_its_lease_is_renewed(rig: &mut Rig) {
    rig.quarantine("a").await;
    let held = rig.claim_quarantined().await.one();
    rig.pass(ms(LEASE - 1)).await;
    assert!(rig.renew(&held).await);
    let look = rig.look("a").await.expect("it runs");
    assert_eq!((look.quarantined, look.score), (true, Some(rig.now() + LEASE)));
}

async fn what_is_in_quarantine_stays_there_when_it_is_rescheduled(rig: &mut Rig) {
    rig.quarantine("a").await;
    let _ = rig.reschedule("a", WireWhen::In(10)).await;
    let deadline = rig.ceil() + 10;
    rig.pass(ms(15)).await;
    let heads = rig.finds_nothing().await;
    assert_eq!((heads.due, heads.quarantine), (None, Some(deadline)));
    assert_eq!(rig.claim_quarantined().await.state().lost, 2);
}

async fn a_live_settlement_clears_lost_leases(rig: &mut Rig) {
    for end in [retry(0), snooze(0)] {
        rig.lose("a", 3).await;
        let held = rig.claim_quarantined().await.one();
        rig.end(&held, end).await;
        rig.pass(ms(1)).await;
        let taken = rig.claim().await;
        assert_eq!(taken.state().lost, 0, "it runs with the others again");
        rig.ack(&[taken.one()]).await;
    }
}

async fn a_release_keeps_lost_leases(rig: &mut Rig) {
    rig.quarantine("a").await;
    let held = rig.claim_quarantined().await.one();
    let SettleReply::Settled(Some((deadline, _))) = rig.end(&held, AttemptEnd::Release).await else {
        panic!("it was held");
    };
    let heads = rig.finds_nothing().await;
    assert_eq!((heads.due, heads.quarantine), (None, Some(deadline)), "it has stayed there");
    assert_eq!(rig.claim_quarantined().await.state().lost, 2);
}

async fn arming_over_what_waits_in_quarantine_keeps_lost_leases(rig: &mut Rig) {
    rig.quarantine("a").await;
    let (timer, reply) = rig.arm_in("a", 0).await;
    assert_eq!(reply.code, ArmCode::Replaced);
    rig.pass(ms(5)).await;
    let heads = rig.finds_nothing().await;
    assert_eq!((heads.due, heads.quarantine), (None, Some(reply.deadline)), "it has stayed there");
    let taken = rig.claim_quarantined().await;
    assert_eq!((taken.state().lost, rig.armed("a").await), (2, Some(timer.arming)));
    assert_eq!(taken.state().history, Bytes::new());
}

async fn a_cancel_forgets_lost_leases(rig: &mut Rig) {
    rig.quarantine("a").await;
    rig.cancel("a").await;
    rig.run("a").await;
    assert!(!rig.look("a").await.expect("it runs").quarantined);
}

async fn others_are_armed_as_ever_beside_what_is_in_quarantine(rig: &mut Rig) {
    rig.quarantine("a").await;
    assert_eq!(rig.arm_in("b", 0).await.1.code, ArmCode::Armed);
}
