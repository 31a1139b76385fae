//! Records and states that are not as they should be.

use keylapse::dead_letters::DeadReason;
use keylapse::timers::ArmingId;
use keylapse_wire::record::{State, StoredDeadLetter};
use keylapse_wire::{AttemptEnd, Claim, RepairTarget, SettleReply};

use crate::model::rig::{ArmCode, LETTERS, Rig, dead, letter_name, ms};

on_each_server! {
    a_record_of_a_newer_version_is_parked_for_a_minute,
    a_state_of_a_newer_version_is_parked_too,
    a_record_cut_short_is_buried_as_unreadable,
    an_empty_record_is_buried_as_unreadable,
    of_a_record_cut_behind_its_arming_id_that_id_ends,
    a_state_cut_short_is_buried_with_its_record,
    an_index_entry_without_a_record_is_removed,
    broken_records_do_not_stop_the_healthy_behind_them,
    a_record_cut_short_while_it_runs_can_still_be_released,
    a_state_cut_short_while_it_runs_can_still_be_acked,
    a_state_cut_short_while_it_runs_does_not_block_a_repeated_claim,
    what_loses_its_state_leaves_the_quarantine,
    what_is_armed_over_a_lost_state_leaves_the_quarantine_and_keeps_its_deadline,
}

async fn a_record_of_a_newer_version_is_parked_for_a_minute(rig: &mut Rig) {
    rig.arm_in("a", 0).await;
    rig.put_raw(RepairTarget::Records, b"a", Some(b"\x02from the future")).await;
    rig.pass(ms(1)).await;
    let taken = rig.claim().await;
    assert_eq!((taken.is_empty(), taken.claimed.parked), (true, 1));
    assert_eq!(taken.claimed.heads.due, Some(rig.now() + 60_000));
    let look = rig.look("a").await.expect("it is never dropped");
    assert_eq!(&look.record[..], b"\x02from the future");
    rig.pass(ms(60_000)).await;
    assert_eq!(rig.claim().await.claimed.parked, 1);
}

async fn a_state_of_a_newer_version_is_parked_too(rig: &mut Rig) {
    rig.arm_in("a", 0).await;
    rig.put_raw(RepairTarget::States, b"a", Some(b"\x02from the future")).await;
    rig.pass(ms(1)).await;
    let taken = rig.claim().await;
    assert_eq!((taken.is_empty(), taken.claimed.parked), (true, 1));
}

/// The only letter, which a claim has just made.
async fn letter_of_a_claim(rig: &mut Rig) -> (Vec<u8>, StoredDeadLetter) {
    rig.pass(ms(1)).await;
    let taken = rig.claim().await;
    assert_eq!((taken.is_empty(), taken.claimed.dead_lettered), (true, 1));
    assert_eq!(rig.look("a").await, None);
    let raw = rig.letters().await.remove(0);
    (raw.id.to_vec(), StoredDeadLetter::decode(raw.letter).expect("it can be read"))
}

async fn a_record_cut_short_is_buried_as_unreadable(rig: &mut Rig) {
    let (timer, _) = rig.arm_in("a", 0).await;
    let cut = [&b"\x01"[..], timer.arming.as_bytes(), b"1234567"].concat();
    rig.put_raw(RepairTarget::Records, b"a", Some(&cut)).await;
    let (id, letter) = letter_of_a_claim(rig).await;
    assert_eq!(id, letter_name(timer.arming, rig.now(), b"a"));
    assert_eq!((letter.reason, letter.died), (DeadReason::Unreadable, rig.now()));
    assert_eq!((&letter.record[..], &letter.state[..]), (&cut[..], &b""[..]), "its bytes are kept");
}

async fn an_empty_record_is_buried_as_unreadable(rig: &mut Rig) {
    rig.arm_in("a", 0).await;
    rig.put_raw(RepairTarget::Records, b"a", Some(b"")).await;
    let (id, letter) = letter_of_a_claim(rig).await;
    let nobody = ArmingId::from_bytes(&[0; 8]).expect("it has 8 bytes");
    assert_eq!((id, letter.reason), (letter_name(nobody, rig.now(), b"a"), DeadReason::Unreadable));
}

async fn of_a_record_cut_behind_its_arming_id_that_id_ends(rig: &mut Rig) {
    let (first, held) = rig.run("a").await;
    let (kept, _) = rig.arm_in("a", 10).await;
    rig.put_raw(RepairTarget::Records, b"a", Some(&[&b"\x01"[..], first.arming.as_bytes()].concat())).await;
    rig.end(&held, dead()).await;
    assert_eq!(rig.letters().await[0].id, letter_name(first.arming, rig.now(), b"a"));
    assert_eq!(rig.arm_again(&first).await.code, ArmCode::Superseded);
    assert_eq!(rig.armed("a").await, Some(kept.arming));
}

async fn a_state_cut_short_is_buried_with_its_record(rig: &mut Rig) {
    rig.arm_in("a", 0).await;
    rig.put_raw(RepairTarget::States, b"a", Some(b"\x01short")).await;
    let (_, letter) = letter_of_a_claim(rig).await;
    assert_eq!((letter.reason, &letter.state[..]), (DeadReason::Unreadable, &b"\x01short"[..]));
}

async fn an_index_entry_without_a_record_is_removed(rig: &mut Rig) {
    rig.arm_in("a", 0).await;
    rig.put_raw(RepairTarget::Records, b"a", None).await;
    rig.put_raw(RepairTarget::States, b"a", Some(&State::waiting(2).encode())).await;
    rig.pass(ms(1)).await;
    let taken = rig.claim().await;
    assert_eq!((taken.is_empty(), taken.claimed.orphans), (true, 1));
    assert_eq!((taken.claimed.heads.due, rig.length("timer_states").await), (None, 0));
}

async fn broken_records_do_not_stop_the_healthy_behind_them(rig: &mut Rig) {
    for key in ["newer", "broken", "gone", "healthy"] {
        rig.arm_in(key, 0).await;
    }
    rig.put_raw(RepairTarget::Records, b"newer", Some(b"\x02")).await;
    rig.put_raw(RepairTarget::Records, b"broken", Some(b"\x00")).await;
    rig.put_raw(RepairTarget::Records, b"gone", None).await;
    rig.pass(ms(1)).await;
    assert_eq!(rig.claim().await.keys(), ["healthy"]);
}

async fn a_record_cut_short_while_it_runs_can_still_be_released(rig: &mut Rig) {
    let (_, held) = rig.run("a").await;
    rig.put_raw(RepairTarget::Records, b"a", Some(b"\x01cut")).await;
    // It shares a call with others, which must not fail with it.
    let released = rig.end(&held, AttemptEnd::Release).await;
    assert_eq!(released, SettleReply::Settled(None));
    let state = rig.look("a").await.and_then(|look| look.state).expect("it waits");
    assert!(!State::decode(state).expect("it can be read").claimed);
    assert_eq!(rig.claim_with(|call| call.letters = LETTERS).await.claimed.dead_lettered, 1);
}

async fn a_state_cut_short_while_it_runs_can_still_be_acked(rig: &mut Rig) {
    let (_, held) = rig.run("a").await;
    let cut = &State::first(held.token).encode()[..14];
    rig.put_raw(RepairTarget::States, b"a", Some(cut)).await;
    assert_eq!(rig.ack(&[held]).await.gone, [0; 0]);
    assert_eq!(rig.look("a").await, None);
}

async fn a_state_cut_short_while_it_runs_does_not_block_a_repeated_claim(rig: &mut Rig) {
    rig.arm_due(["a", "b"]).await;
    let taken = rig.claim().await;
    let cut = &State::first(taken.call.token).encode()[..14];
    rig.put_raw(RepairTarget::States, b"a", Some(cut)).await;
    let again = rig.claim_as(Claim { repeat: true, ..taken.call }).await;
    assert_eq!(again.keys(), ["a", "b"]);
    rig.lose_leases().await;
    assert_eq!(rig.claim().await.claimed.dead_lettered, 1);
}

async fn what_loses_its_state_leaves_the_quarantine(rig: &mut Rig) {
    rig.quarantine("a").await;
    rig.put_raw(RepairTarget::States, b"a", None).await;
    let taken = rig.claim_quarantined().await;
    assert!(taken.is_empty());
    assert_eq!((taken.claimed.heads.due, taken.claimed.heads.quarantine), (Some(rig.now()), None));
    let taken = rig.claim().await;
    assert_eq!(taken.state().lost, 0);
    rig.ack(&taken.held()).await;
    assert_eq!(rig.claim_quarantined().await.claimed.heads.quarantine, None, "it is in one index only");
}

async fn what_is_armed_over_a_lost_state_leaves_the_quarantine_and_keeps_its_deadline(rig: &mut Rig) {
    rig.quarantine("a").await;
    rig.put_raw(RepairTarget::States, b"a", None).await;
    let (_, armed) = rig.arm_in("a", 1000).await;
    assert_eq!(armed.code, ArmCode::Replaced);
    let taken = rig.claim_quarantined().await;
    assert!(taken.is_empty());
    let heads = taken.claimed.heads;
    assert_eq!((heads.due, heads.quarantine), (Some(armed.deadline), None));
}
