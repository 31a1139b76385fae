//! An arming over a running attempt is kept, and takes effect when that ends.

use crate::model::rig::{ArmCode, ArmReply, LEASE, Rig, dead, ms, retry, snooze};
use bytes::Bytes;
use keylapse::Cancelled;
use keylapse::dead_letters::DeadReason;
use keylapse_wire::record::{Record, State, StoredDeadLetter};
use keylapse_wire::time::WireWhen;
use keylapse_wire::{
    AttemptEnd, Index, NewTimer, PromotedArming, QuarantineGroup, RawDeadLetter, SettleReply,
};

on_each_server! {
    arming_over_a_running_attempt_keeps_it_for_later,
    a_later_arming_takes_the_place_of_a_kept_one,
    a_later_arming_over_what_was_handed_back_withdraws_a_kept_one,
    it_follows_an_ack,
    it_follows_at_its_deadline_although_it_has_no_payload,
    it_follows_once_although_an_ack_names_the_timer_twice,
    it_follows_a_death,
    it_takes_the_place_of_a_retry,
    it_takes_the_place_of_running_again,
    it_waits_through_a_release,
    it_waits_through_a_snooze,
    it_waits_through_lost_leases,
    it_inherits_the_lost_leases_of_a_poison_pill,
    what_a_dying_attempt_has_armed_for_its_own_key_dies_with_it_and_does_not_run,
    what_an_attempt_has_armed_for_its_own_key_follows_any_other_end,
    what_others_have_armed_follows_a_poison_pill_as_the_last_in_quarantine,
    it_inherits_nothing_from_a_live_holder,
    a_cancel_withdraws_it_too,
    it_may_be_due_already_when_its_turn_comes,
}

/// A running attempt of `a`, with another arming kept behind it.
async fn run_and_keep(rig: &mut Rig) -> (keylapse_wire::LeaseRef, NewTimer, ArmReply) {
    let (_, held) = rig.run("a").await;
    let (kept, reply) = rig.arm_in("a", 1000).await;
    assert_eq!(reply.code, ArmCode::AfterRunning);
    (held, kept, reply)
}

async fn arming_over_a_running_attempt_keeps_it_for_later(rig: &mut Rig) {
    let (_, kept, reply) = run_and_keep(rig).await;
    assert_eq!(reply.deadline, rig.ceil() + 1000);
    let look = rig.look("a").await.expect("it runs");
    assert_eq!(&look.next.expect("it is kept")[1..9], kept.arming.as_bytes());
    rig.pass(ms(1001)).await;
    assert!(rig.claim().await.is_empty(), "there is one live attempt at a time");
}

async fn a_later_arming_takes_the_place_of_a_kept_one(rig: &mut Rig) {
    let (held, first, _) = run_and_keep(rig).await;
    let (second, reply) = rig.arm_in("a", 2000).await;
    assert_eq!(reply.code, ArmCode::AfterRunning);
    assert_eq!(rig.arm_again(&first).await.code, ArmCode::Superseded);
    rig.ack(&[held]).await;
    assert_eq!(rig.armed("a").await, Some(second.arming));
}

async fn a_later_arming_over_what_was_handed_back_withdraws_a_kept_one(rig: &mut Rig) {
    let (held, kept, _) = run_and_keep(rig).await;
    rig.end(&held, AttemptEnd::Release).await;
    let (latest, reply) = rig.arm_in("a", 0).await;
    assert_eq!(reply.code, ArmCode::Replaced);
    rig.pass(ms(1)).await;
    let held = rig.claim().await.one();
    assert_eq!(rig.armed("a").await, Some(latest.arming));
    assert_eq!(rig.ack(&[held]).await.followed, [], "the latest arming stands");
    assert_eq!(rig.arm_again(&kept).await.code, ArmCode::Superseded);
}

async fn it_follows_an_ack(rig: &mut Rig) {
    let (held, kept, ArmReply { deadline, .. }) = run_and_keep(rig).await;
    let reply = rig.ack(&[held]).await;
    assert_eq!(reply.followed, [PromotedArming { place: 0, deadline, arming: kept.arming }]);
    rig.pass(ms(1001)).await;
    assert_eq!(rig.claim().await.claimed.timers[0].state, None, "this is a first attempt");
}

async fn it_follows_at_its_deadline_although_it_has_no_payload(rig: &mut Rig) {
    let (_, held) = rig.run("a").await;
    let empty = NewTimer { payload: Bytes::new(), ..rig.timer("a", WireWhen::In(1000)) };
    let kept = rig.arm_all(std::slice::from_ref(&empty)).await[0];
    let followed = PromotedArming { place: 0, deadline: kept.deadline, arming: empty.arming };
    assert_eq!(rig.ack(&[held]).await.followed, [followed]);
}

async fn it_follows_once_although_an_ack_names_the_timer_twice(rig: &mut Rig) {
    let (held, kept, _) = run_and_keep(rig).await;
    let reply = rig.ack(&[held.clone(), held]).await;
    assert_eq!((reply.gone, reply.followed.len()), (vec![], 1));
    assert_eq!(rig.armed("a").await, Some(kept.arming));
}

async fn it_follows_a_death(rig: &mut Rig) {
    let (held, kept, reply) = run_and_keep(rig).await;
    assert_eq!(rig.end(&held, dead()).await, SettleReply::ReplacedByQueued(reply.deadline, kept.arming));
    assert_eq!(rig.letters().await.len(), 1);
    assert_eq!(rig.armed("a").await, Some(kept.arming));
}

async fn it_takes_the_place_of_a_retry(rig: &mut Rig) {
    let (held, kept, reply) = run_and_keep(rig).await;
    let first = NewTimer { arming: rig.armed("a").await.expect("it runs"), ..kept.clone() };
    assert_eq!(rig.end(&held, retry(5)).await, SettleReply::ReplacedByQueued(reply.deadline, kept.arming));
    rig.pass(ms(6)).await;
    assert!(rig.claim().await.is_empty(), "the retry is off");
    assert_eq!(rig.arm_again(&first).await.code, ArmCode::Superseded);
}

async fn it_takes_the_place_of_running_again(rig: &mut Rig) {
    let (held, kept, reply) = run_and_keep(rig).await;
    let again = AttemptEnd::Again { delay: 5, arming: rig.ids.arming() };
    assert_eq!(rig.end(&held, again).await, SettleReply::ReplacedByQueued(reply.deadline, kept.arming));
}

async fn it_waits_through_a_release(rig: &mut Rig) {
    let (held, kept, _) = run_and_keep(rig).await;
    rig.end(&held, AttemptEnd::Release).await;
    let unfinished = rig.claim().await.one();
    assert_ne!(rig.armed("a").await, Some(kept.arming));
    rig.ack(&[unfinished]).await;
    assert_eq!(rig.armed("a").await, Some(kept.arming));
}

async fn it_waits_through_a_snooze(rig: &mut Rig) {
    let (held, kept, _) = run_and_keep(rig).await;
    rig.end(&held, snooze(5)).await;
    rig.pass(ms(6)).await;
    let snoozed = rig.claim().await.one();
    assert_ne!(rig.armed("a").await, Some(kept.arming));
    rig.ack(&[snoozed]).await;
    assert_eq!(rig.armed("a").await, Some(kept.arming));
}

async fn it_waits_through_lost_leases(rig: &mut Rig) {
    let (_, kept, _) = run_and_keep(rig).await;
    for _ in 0..3 {
        rig.lose_leases().await;
        let taken = rig.claim_next().await;
        assert_ne!(taken.claimed.timers[0].record[1..9], kept.arming.as_bytes()[..]);
    }
}

async fn it_inherits_the_lost_leases_of_a_poison_pill(rig: &mut Rig) {
    rig.lose("a", 4).await;
    let pill = rig.claim_quarantined().await;
    assert_eq!(pill.state().lost, 4);
    let (kept, _) = rig.arm_in("a", 0).await;
    rig.lose_leases().await;
    let burial = rig.claim_quarantined().await;
    assert_eq!((burial.claimed.dead_lettered, burial.is_empty()), (1, true));

    let alone = rig.claim_next().await;
    assert_eq!(alone.call.index, keylapse_wire::Index::Quarantine);
    assert_eq!(alone.state(), State { lost: 4, ..State::first(alone.call.token) });
    assert_eq!(rig.armed("a").await, Some(kept.arming));
    rig.lose_leases().await;
    assert_eq!(rig.claim_quarantined().await.claimed.dead_lettered, 1, "one lease lost is enough now");
}

/// `a` has four lost leases, and runs alone for the last time.
async fn run_for_the_last_time(rig: &mut Rig) -> keylapse_wire::LeaseRef {
    rig.lose("a", 4).await;
    rig.claim_quarantined().await.one()
}

async fn what_a_dying_attempt_has_armed_for_its_own_key_dies_with_it_and_does_not_run(rig: &mut Rig) {
    run_for_the_last_time(rig).await;
    let pill = rig.armed("a").await.expect("it runs");
    let (own, reply) = rig.arm_own("a").await;
    assert_eq!(reply.code, ArmCode::AfterRunning);
    rig.lose_leases().await;
    let burial = rig.claim_quarantined().await;
    assert_eq!((burial.claimed.dead_lettered, burial.is_empty(), rig.look("a").await), (2, true, None));

    let decoded =
        |raw: RawDeadLetter| (StoredDeadLetter::decode(raw.letter).expect("it can be read"), raw.id);
    let mut letters: Vec<_> = rig.letters().await.into_iter().map(decoded).collect();
    letters.sort_by_key(|(letter, _)| letter.reason == DeadReason::Inherited);
    let [dead, unrun] = [0, 1].map(|place| letters[place].0.clone());
    assert_eq!((dead.reason, unrun.reason), (DeadReason::LostLeases, DeadReason::Inherited));
    let armings = [dead.record, unrun.record].map(|record| Record::decode(record).expect("a record").arming);
    assert_eq!(armings, [pill, own.arming]);
    assert_eq!(rig.arm_again(&own).await.code, ArmCode::Superseded);

    assert_eq!(rig.replay(&letters[1].1).await, keylapse::dead_letters::Replayed::Replayed);
    rig.pass(ms(1)).await;
    assert_eq!(rig.claim().await.claimed.timers[0].record[17..], own.payload);
}

async fn what_an_attempt_has_armed_for_its_own_key_follows_any_other_end(rig: &mut Rig) {
    for end in [None, Some(retry(5)), Some(dead())] {
        let held = run_for_the_last_time(rig).await;
        let (own, _) = rig.arm_own("a").await;
        match end {
            None => assert_eq!(rig.ack(&[held]).await.followed[0].arming, own.arming),
            Some(end) => drop(rig.end(&held, end).await),
        }
        rig.pass(ms(1)).await;
        let held = rig.claim().await.one();
        assert_eq!(rig.armed("a").await, Some(own.arming));
        rig.ack(&[held]).await;
    }
}

async fn what_others_have_armed_follows_a_poison_pill_as_the_last_in_quarantine(rig: &mut Rig) {
    rig.lose("b", 2).await;
    let _ = rig.finds_nothing().await;
    let _ = rig.reschedule("b", WireWhen::In(6 * LEASE)).await;
    run_for_the_last_time(rig).await;
    rig.arm_own("a").await;
    let (others, _) = rig.arm_in("a", 0).await;
    rig.pass(ms(2 * LEASE)).await;
    let group = QuarantineGroup { running: 0, sizes: [4, 2, 1] };
    let taken = rig.claim_with(|call| (call.index, call.group) = (Index::Quarantine, group)).await;
    assert_eq!((taken.claimed.dead_lettered, taken.keys()), (1, vec![Bytes::from_static(b"b")]));
    assert_eq!(rig.armed("a").await, Some(others.arming));
    assert_eq!(rig.claim_quarantined().await.state().lost, 4);
}

async fn it_inherits_nothing_from_a_live_holder(rig: &mut Rig) {
    rig.lose("a", 3).await;
    let held = rig.claim_quarantined().await.one();
    rig.arm_in("a", 0).await;
    rig.ack(&[held]).await;
    rig.pass(ms(1)).await;
    assert_eq!(rig.claim().await.state().lost, 0);
}

async fn a_cancel_withdraws_it_too(rig: &mut Rig) {
    let (held, kept, _) = run_and_keep(rig).await;
    assert_eq!(rig.cancel("a").await.result, Cancelled::InFlight);
    assert_eq!(rig.ack(&[held]).await.gone, [0]);
    assert_eq!(rig.look("a").await, None);
    assert_eq!(rig.arm_again(&kept).await.code, ArmCode::Superseded);
    let (_, held) = rig.run("a").await;
    assert_eq!(rig.ack(&[held]).await.followed, [], "nothing is left of it");
}

async fn it_may_be_due_already_when_its_turn_comes(rig: &mut Rig) {
    let (held, kept, reply) = run_and_keep(rig).await;
    rig.pass(ms(LEASE - 1)).await;
    rig.ack(&[held]).await;
    let taken = rig.claim().await;
    assert_eq!(taken.keys(), ["a"]);
    assert!(reply.deadline < rig.now());
    assert_eq!(rig.armed("a").await, Some(kept.arming));
}
