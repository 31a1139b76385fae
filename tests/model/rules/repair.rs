//! The slow repair: everything can be rebuilt from records and states.

use crate::model::rig::{ArmCode, LEASE, Rig, ms, retry};
use keylapse_connection::id::Token;
use keylapse_wire::record::{Record, State};
use keylapse_wire::time::{MAX_DEADLINE_MS, WireWhen};
use keylapse_wire::{AttemptEnd, LeaseRef, RepairTarget};

on_each_server! {
    a_waiting_record_without_an_index_entry_comes_back_at_its_deadline,
    a_retry_without_an_index_entry_comes_back_at_its_own_deadline,
    a_held_record_without_an_index_entry_gets_a_lease,
    what_is_in_quarantine_stays_there_without_an_index_entry,
    a_lease_without_an_end_in_sight_is_cut_short,
    a_broken_record_without_an_index_entry_is_due_now,
    a_record_whose_day_never_comes_is_due_now,
    a_state_without_a_record_is_removed,
    a_kept_arming_without_a_timer_takes_its_place,
    a_state_left_behind_does_not_speak_for_a_kept_arming,
    a_claim_slot_is_removed_after_a_day,
    a_claim_slot_cut_short_is_removed_at_once,
    what_is_in_order_is_left_alone,
    arming_over_a_lost_index_entry_starts_afresh,
}

/// How many entries one whole scan has put right.
async fn tidy(rig: &Rig, what: RepairTarget) -> u64 {
    rig.repair(what).await.expect("it can be tidied")
}

async fn a_waiting_record_without_an_index_entry_comes_back_at_its_deadline(rig: &mut Rig) {
    let (_, reply) = rig.arm_in("a", 10).await;
    rig.unindex(b"a").await;
    assert_eq!(tidy(rig, RepairTarget::Records).await, 1);
    assert_eq!(rig.look("a").await.expect("it waits").score, Some(reply.deadline));
}

async fn a_retry_without_an_index_entry_comes_back_at_its_own_deadline(rig: &mut Rig) {
    let (_, held) = rig.run("a").await;
    rig.end(&held, retry(500)).await;
    rig.unindex(b"a").await;
    assert_eq!(tidy(rig, RepairTarget::Records).await, 1);
    assert_eq!(rig.look("a").await.expect("it waits").score, Some(rig.ceil() + 500));
}

async fn a_held_record_without_an_index_entry_gets_a_lease(rig: &mut Rig) {
    let (_, held) = rig.run("a").await;
    rig.unindex(b"a").await;
    rig.pass(ms(7)).await;
    assert_eq!(tidy(rig, RepairTarget::Records).await, 1);
    assert_eq!(rig.look("a").await.expect("it runs").score, Some(rig.now() + LEASE));
    assert_eq!(rig.ack(&[held]).await.gone, [0; 0], "its holder may be alive");
}

async fn what_is_in_quarantine_stays_there_without_an_index_entry(rig: &mut Rig) {
    rig.lose("a", 3).await;
    rig.unindex(b"a").await;
    assert_eq!(tidy(rig, RepairTarget::Records).await, 1);
    assert!(rig.look("a").await.expect("it waits").quarantined);
}

async fn a_lease_without_an_end_in_sight_is_cut_short(rig: &mut Rig) {
    rig.arm_due(["a"]).await;
    let never = MAX_DEADLINE_MS - rig.now();
    let taken = rig.claim_with(|call| call.lease_ms = never).await;
    assert_eq!(tidy(rig, RepairTarget::Records).await, 1);
    assert_eq!(rig.look("a").await.expect("it runs").score, Some(rig.now() + LEASE));
    rig.ack(&taken.held()).await;

    rig.arm_due(["a"]).await;
    rig.claim_with(|call| call.lease_ms = 1 << 45).await;
    assert_eq!(tidy(rig, RepairTarget::Records).await, 1);
    assert_eq!(rig.look("a").await.expect("it runs").score, Some(rig.now() + LEASE));
}

async fn a_broken_record_without_an_index_entry_is_due_now(rig: &mut Rig) {
    let (_, held) = rig.run("a").await;
    rig.put_raw(RepairTarget::Records, b"a", Some(b"")).await;
    rig.end(&held, AttemptEnd::Release).await;
    rig.unindex(b"a").await;
    assert_eq!(tidy(rig, RepairTarget::Records).await, 1);
    assert_eq!(rig.look("a").await.expect("it waits").score, Some(rig.now()));
    assert_eq!(rig.claim().await.claimed.dead_lettered, 1);
}

async fn a_record_whose_day_never_comes_is_due_now(rig: &mut Rig) {
    let (timer, _) = rig.arm_in("a", 10).await;
    for deadline in [MAX_DEADLINE_MS, u64::MAX] {
        let record = Record { arming: timer.arming, deadline, payload: timer.payload.clone() };
        rig.put_raw(RepairTarget::Records, b"a", Some(&record.encode())).await;
        rig.unindex(b"a").await;
        assert_eq!((tidy(rig, RepairTarget::Records).await, tidy(rig, RepairTarget::Records).await), (1, 0));
        assert_eq!(rig.look("a").await.expect("it waits").score, Some(rig.now()));
    }
}

async fn a_state_without_a_record_is_removed(rig: &mut Rig) {
    rig.put_raw(RepairTarget::States, b"a", Some(&State::waiting(7).encode())).await;
    assert_eq!((tidy(rig, RepairTarget::States).await, tidy(rig, RepairTarget::States).await), (1, 0));
}

async fn a_kept_arming_without_a_timer_takes_its_place(rig: &mut Rig) {
    let (_, held) = rig.run("a").await;
    let (kept, reply) = rig.arm_in("a", 10).await;
    assert_eq!(reply.code, ArmCode::AfterRunning);
    rig.put_raw(RepairTarget::Records, b"a", None).await;
    rig.put_raw(RepairTarget::States, b"a", None).await;
    assert_eq!(tidy(rig, RepairTarget::Next).await, 1);
    assert_eq!(rig.armed("a").await, Some(kept.arming));
    assert_eq!(rig.ack(&[held]).await.gone, [0]);
}

async fn a_state_left_behind_does_not_speak_for_a_kept_arming(rig: &mut Rig) {
    let (_, held) = rig.run("a").await;
    let (kept, _) = rig.arm_in("a", 10).await;
    rig.put_raw(RepairTarget::Records, b"a", None).await;
    assert_eq!(tidy(rig, RepairTarget::Next).await, 1);
    assert_eq!(rig.ack(&[held]).await.gone, [0], "that was another arming's attempt");
    assert_eq!(rig.armed("a").await, Some(kept.arming));
}

async fn a_claim_slot_is_removed_after_a_day(rig: &mut Rig) {
    rig.run("a").await;
    rig.pass(ms(86_400_000 - 1)).await;
    assert_eq!(tidy(rig, RepairTarget::Slots).await, 0);
    rig.pass(ms(1)).await;
    assert_eq!((tidy(rig, RepairTarget::Slots).await, tidy(rig, RepairTarget::Slots).await), (1, 0));
}

async fn a_claim_slot_cut_short_is_removed_at_once(rig: &mut Rig) {
    let claim = [&b"a token."[..], &rig.now().to_be_bytes()].concat();
    rig.put_raw(RepairTarget::Slots, b"the slot", Some(&claim)).await;
    assert_eq!(tidy(rig, RepairTarget::Slots).await, 0, "it says when that was");
    rig.put_raw(RepairTarget::Slots, b"the slot", Some(&claim[..15])).await;
    assert_eq!(tidy(rig, RepairTarget::Slots).await, 1);
}

async fn what_is_in_order_is_left_alone(rig: &mut Rig) {
    rig.quarantine("alone").await;
    let timers = ["a", "b", "c"].map(|key| rig.timer(key, WireWhen::In(10)));
    rig.arm_all(&timers).await;
    rig.run("running").await;
    rig.arm_in("running", 10).await;
    for what in [RepairTarget::Records, RepairTarget::States, RepairTarget::Next, RepairTarget::Slots] {
        assert_eq!(tidy(rig, what).await, 0, "{what:?}");
    }
}

async fn arming_over_a_lost_index_entry_starts_afresh(rig: &mut Rig) {
    let (_, held) = rig.run("a").await;
    rig.unindex(b"a").await;
    let (timer, reply) = rig.arm_in("a", 0).await;
    assert_eq!(reply.code, ArmCode::Armed);
    let nobody = LeaseRef { token: Token::from_bytes(&[0; 8]).expect("it has 8 bytes"), ..held.clone() };
    assert_eq!(rig.ack(&[held, nobody]).await.gone, [0, 1]);
    rig.pass(ms(1)).await;
    assert_eq!(rig.claim().await.state().attempt, 1);
    assert_eq!(rig.armed("a").await, Some(timer.arming));
}
