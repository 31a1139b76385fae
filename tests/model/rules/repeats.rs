//! Calls whose answers were lost, made once more.

use crate::model::rig::{ArmCode, Ids, LEASE, Rig, Taken, dead, ms};
use crate::produce::{Cancel, Produce};
use bytes::Bytes;
use keylapse::dead_letters::Replayed;
use keylapse_wire::record::State;
use keylapse_wire::time::{ServerTime, WireWhen};
use keylapse_wire::{AttemptEnd, Claim, Index, NewTimer, TimerSnapshot};

on_each_server! {
    a_repeated_arm_answers_as_the_first,
    a_repeated_arm_that_never_arrived_arms,
    a_repeated_arm_finds_what_was_kept,
    a_repeated_arm_without_a_payload_answers_as_the_first,
    a_repeated_arm_finds_what_is_kept_behind_a_released_attempt,
    a_repeated_arm_finds_a_retry_at_its_present_deadline,
    a_repeated_arm_that_replaced_says_so_again,
    a_repeat_that_arms_again_has_replaced_nothing,
    a_repeat_that_is_kept_for_later_has_replaced_nothing,
    a_repeated_arm_after_a_cancel_is_superseded,
    a_repeated_arm_after_a_later_arming_is_superseded,
    a_repeated_arm_after_it_was_followed_is_superseded,
    a_repeated_arm_after_it_ran_again_is_superseded,
    a_repeated_arm_after_its_ack_arms_again,
    a_tombstone_is_forgotten_after_ten_minutes,
    the_oldest_of_a_hundred_thousand_tombstones_are_forgotten,
    a_repeated_claim_returns_and_renews_what_it_holds,
    a_repeated_claim_that_never_arrived_claims,
    a_repeated_claim_leaves_out_what_has_ended,
    a_repeated_claim_leaves_out_what_was_claimed_since,
    a_repeated_claim_is_answered_although_the_partition_is_paused,
    a_repeated_claim_renews_what_is_in_quarantine,
    a_repeated_claim_hands_back_what_it_has_no_room_for,
    what_a_repeated_claim_hands_back_is_as_it_was_before,
    a_repeated_claim_hands_back_to_the_quarantine,
    the_next_claim_overwrites_its_slot,
    listeners_do_not_share_a_slot,
    a_closed_slot_is_gone,
    a_repeated_replay_answers_as_the_first,
    a_repeated_replay_answers_as_the_first_when_the_timer_has_ended,
    a_repeated_replay_that_found_nothing_is_the_replay,
    a_replay_is_remembered_for_ten_minutes,
}

async fn repeat(rig: &Rig, taken: &Taken) -> Taken {
    rig.claim_as(Claim { repeat: true, ..taken.call }).await
}

async fn a_repeated_arm_answers_as_the_first(rig: &mut Rig) {
    let (timer, reply) = rig.arm_in("a", 10).await;
    rig.pass(ms(3)).await;
    assert_eq!(rig.arm_again(&timer).await, reply);
}

async fn a_repeated_arm_that_never_arrived_arms(rig: &mut Rig) {
    let timer = rig.timer("a", WireWhen::In(10));
    assert_eq!(rig.arm_again(&timer).await.code, ArmCode::Armed);
}

async fn a_repeated_arm_finds_what_was_kept(rig: &mut Rig) {
    rig.run("a").await;
    let (kept, reply) = rig.arm_in("a", 10).await;
    rig.pass(ms(3)).await;
    assert_eq!(rig.arm_again(&kept).await, reply);
}

/// Of its record there is nothing but the head.
async fn a_repeated_arm_without_a_payload_answers_as_the_first(rig: &mut Rig) {
    let empty = NewTimer { payload: Bytes::new(), ..rig.timer("a", WireWhen::In(0)) };
    let reply = rig.arm_all(std::slice::from_ref(&empty)).await[0];
    rig.pass(ms(3)).await;
    assert_eq!((reply.code, rig.arm_again(&empty).await), (ArmCode::Armed, reply));
    rig.claim().await.one();
    let kept = NewTimer { payload: Bytes::new(), ..rig.timer("a", WireWhen::In(10)) };
    let reply = rig.arm_all(std::slice::from_ref(&kept)).await[0];
    rig.pass(ms(3)).await;
    assert_eq!((reply.code, rig.arm_again(&kept).await), (ArmCode::AfterRunning, reply));
}

async fn a_repeated_arm_finds_what_is_kept_behind_a_released_attempt(rig: &mut Rig) {
    let (_, held) = rig.run("a").await;
    let (kept, reply) = rig.arm_in("a", 10).await;
    rig.end(&held, AttemptEnd::Release).await;
    rig.pass(ms(3)).await;
    assert_eq!(rig.arm_again(&kept).await, reply);
}

async fn a_repeated_arm_finds_a_retry_at_its_present_deadline(rig: &mut Rig) {
    let (timer, held) = rig.run("a").await;
    rig.end(&held, crate::model::rig::retry(500)).await;
    let deadline = rig.ceil() + 500;
    rig.pass(ms(3)).await;
    let reply = rig.arm_again(&timer).await;
    assert_eq!((reply.code, reply.deadline), (ArmCode::Armed, deadline));
}

async fn a_repeated_arm_that_replaced_says_so_again(rig: &mut Rig) {
    rig.arm_in("a", 10).await;
    let (second, reply) = rig.arm_in("a", 20).await;
    rig.pass(ms(3)).await;
    assert_eq!((reply.code, rig.arm_again(&second).await), (ArmCode::Replaced, reply));
}

async fn a_repeat_that_arms_again_has_replaced_nothing(rig: &mut Rig) {
    rig.arm_in("a", 10).await;
    let (second, reply) = rig.arm_in("a", 0).await;
    assert_eq!(reply.code, ArmCode::Replaced);
    rig.pass(ms(1)).await;
    for _ in 0..2 {
        let held = rig.claim().await.one();
        rig.ack(&[held]).await;
        assert_eq!(rig.arm_again(&second).await.code, ArmCode::Armed);
        assert_eq!(rig.arm_again(&second).await.code, ArmCode::Armed);
        rig.pass(ms(1)).await;
    }
}

async fn a_repeat_that_is_kept_for_later_has_replaced_nothing(rig: &mut Rig) {
    rig.arm_in("a", 10).await;
    let (second, _) = rig.arm_in("a", 0).await;
    rig.pass(ms(1)).await;
    let held = rig.claim().await.one();
    rig.ack(&[held]).await;
    let (_, held) = rig.run("a").await;
    assert_eq!(rig.arm_again(&second).await.code, ArmCode::AfterRunning);
    rig.ack(&[held]).await;
    assert_eq!(rig.arm_again(&second).await.code, ArmCode::Armed);
}

async fn a_repeated_arm_after_a_cancel_is_superseded(rig: &mut Rig) {
    let (timer, _) = rig.arm_in("a", 10).await;
    rig.cancel("a").await;
    assert_eq!(rig.arm_again(&timer).await.code, ArmCode::Superseded);
    assert_eq!(rig.look("a").await, None);
}

async fn a_repeated_arm_after_a_later_arming_is_superseded(rig: &mut Rig) {
    let (first, _) = rig.arm_in("a", 10).await;
    let (second, _) = rig.arm_in("a", 10).await;
    assert_eq!(rig.arm_again(&first).await.code, ArmCode::Superseded);
    assert_eq!(rig.armed("a").await, Some(second.arming));
}

async fn a_repeated_arm_after_it_was_followed_is_superseded(rig: &mut Rig) {
    let (first, held) = rig.run("a").await;
    let (second, _) = rig.arm_in("a", 10).await;
    rig.ack(&[held]).await;
    assert_eq!(rig.arm_again(&first).await.code, ArmCode::Superseded);
    assert_eq!(rig.armed("a").await, Some(second.arming));
}

async fn a_repeated_arm_after_it_ran_again_is_superseded(rig: &mut Rig) {
    let (first, held) = rig.run("a").await;
    let arming = rig.ids.arming();
    rig.end(&held, AttemptEnd::Again { delay: 10, arming }).await;
    assert_eq!(rig.arm_again(&first).await.code, ArmCode::Superseded);
    assert_eq!(rig.armed("a").await, Some(arming));
}

async fn a_repeated_arm_after_its_ack_arms_again(rig: &mut Rig) {
    let (timer, held) = rig.run("a").await;
    rig.ack(&[held]).await;
    assert_eq!(rig.arm_again(&timer).await.code, ArmCode::Armed, "with the same idempotency id");
    assert_eq!(rig.armed("a").await, Some(timer.arming));
}

async fn a_tombstone_is_forgotten_after_ten_minutes(rig: &mut Rig) {
    let (timer, _) = rig.arm_in("a", 10).await;
    rig.cancel("a").await;
    for (wait, code) in [(600_000 - 2, ArmCode::Superseded), (0, ArmCode::Armed)] {
        rig.pass(ms(wait)).await;
        rig.run("other").await;
        rig.cancel("other").await;
        assert_eq!(rig.arm_again(&timer).await.code, code);
    }
}

async fn the_oldest_of_a_hundred_thousand_tombstones_are_forgotten(rig: &mut Rig) {
    let (first, _) = rig.arm_in("0", 10).await;
    rig.cancel("0").await;
    let (second, _) = rig.arm_in("1", 10).await;
    rig.pass(ms(1)).await;
    rig.cancel("1").await;
    rig.pass(ms(1)).await;
    // Each leaves two: of the cancel and of the arming.
    for batch in 0..50 {
        let names: Vec<String> =
            (0..1000).map(|n| format!("{batch}:{n}")).take(if batch == 49 { 999 } else { 1000 }).collect();
        let timers: Vec<_> = names.iter().map(|name| rig.timer(name, WireWhen::In(10))).collect();
        for timers in timers.chunks(500) {
            rig.arm_all(timers).await;
        }
        let cancels: Vec<Cancel> = names.iter().map(|name| rig.cancelling(name)).collect();
        rig.store.cancel(&rig.at, &cancels).await.expect("they can be cancelled");
    }
    assert_eq!(rig.arm_again(&first).await.code, ArmCode::Armed);
    assert_eq!(rig.arm_again(&second).await.code, ArmCode::Superseded);
}

async fn a_repeated_claim_returns_and_renews_what_it_holds(rig: &mut Rig) {
    rig.arm_due(["a", "b"]).await;
    let first = rig.claim().await;
    rig.arm_in("c", 0).await;
    rig.pass(ms(LEASE - 1)).await;
    let second = repeat(rig, &first).await;
    assert_eq!(second.keys(), ["a", "b"], "and not c");
    assert_eq!(rig.look("a").await.expect("it runs").score, Some(rig.now() + LEASE));
    assert_eq!(rig.ack(&first.held()).await.gone, [0; 0]);
}

async fn a_repeated_claim_that_never_arrived_claims(rig: &mut Rig) {
    rig.arm_due(["a"]).await;
    assert_eq!(rig.claim_with(|call| call.repeat = true).await.keys(), ["a"]);
}

async fn a_repeated_claim_leaves_out_what_has_ended(rig: &mut Rig) {
    rig.arm_due(["acked", "cancelled", "running"]).await;
    let first = rig.claim().await;
    rig.ack(&first.held()[..1]).await;
    rig.cancel("cancelled").await;
    assert_eq!(repeat(rig, &first).await.keys(), ["running"]);
}

async fn a_repeated_claim_leaves_out_what_was_claimed_since(rig: &mut Rig) {
    rig.arm_due(["a"]).await;
    let first = rig.claim().await;
    rig.lose_leases().await;
    let other = rig.claim_with(|call| call.slot = Ids::slot(2)).await;
    assert!(repeat(rig, &first).await.is_empty());
    assert_eq!(rig.ack(&other.held()).await.gone, [0; 0]);
}

async fn a_repeated_claim_is_answered_although_the_partition_is_paused(rig: &mut Rig) {
    rig.arm_due(["a"]).await;
    let first = rig.claim().await;
    rig.store.pause(&rig.at, Some("maintenance")).await.expect("it pauses");
    let second = repeat(rig, &first).await;
    assert_eq!(second.keys(), ["a"], "or its lease would be lost for nothing");
    assert_eq!(second.claimed.paused.as_deref(), Some("maintenance"));
}

async fn a_repeated_claim_renews_what_is_in_quarantine(rig: &mut Rig) {
    rig.quarantine("a").await;
    let first = rig.claim_quarantined().await;
    rig.pass(ms(LEASE - 1)).await;
    assert_eq!(repeat(rig, &first).await.state(), first.state());
    let look = rig.look("a").await.expect("it runs");
    assert_eq!((look.quarantined, look.score), (true, Some(rig.now() + LEASE)));
}

/// The repeat of a claim with room for one timer.
async fn repeat_of_one(rig: &Rig, taken: &Taken) -> Taken {
    rig.claim_as(Claim { repeat: true, bytes: 1, ..taken.call }).await
}

async fn a_repeated_claim_hands_back_what_it_has_no_room_for(rig: &mut Rig) {
    rig.arm_due(["a", "b", "c"]).await;
    let first = rig.claim().await;
    let second = repeat_of_one(rig, &first).await;
    assert_eq!(second.keys(), ["a"]);
    assert!(second.claimed.heads.due.is_some_and(|at| at <= rig.now()), "the others are due");
    assert_eq!(repeat(rig, &first).await.keys(), ["a"], "and are not held by this token any more");
    assert_eq!(rig.ack(&first.held()).await.gone, [1, 2]);
    let others = rig.claim_with(|call| call.slot = Ids::slot(2)).await;
    assert_eq!(others.keys(), ["b", "c"], "in their order, at once");
    assert_eq!(rig.ack(&others.held()).await.gone, [0; 0]);
}

/// No attempt is used up, and no lease is lost.
async fn what_a_repeated_claim_hands_back_is_as_it_was_before(rig: &mut Rig) {
    let (_, held) = rig.run("b").await;
    rig.end(&held, crate::model::rig::retry(5)).await;
    rig.arm_in("a", 1).await;
    rig.pass(ms(6)).await;
    let before = rig.look("b").await.expect("it waits");
    let first = rig.claim().await;
    assert_eq!(first.keys(), ["a", "b"]);
    assert_eq!(repeat_of_one(rig, &first).await.keys(), ["a"]);
    let after = rig.look("b").await.expect("it waits again");
    let unstamped = |look| TimerSnapshot { stamp: ServerTime::default(), ..look };
    assert_eq!(unstamped(after), unstamped(before));
}

async fn a_repeated_claim_hands_back_to_the_quarantine(rig: &mut Rig) {
    rig.quarantine("a").await;
    rig.quarantine("b").await;
    let first = rig.claim_with(|call| (call.index, call.group.sizes) = (Index::Quarantine, [2; 3])).await;
    assert_eq!(first.keys().len(), 2);
    let second = repeat_of_one(rig, &first).await;
    let back = if second.keys() == ["a"] { "b" } else { "a" };
    let look = rig.look(back).await.expect("it waits");
    assert!(look.quarantined && look.score.is_some_and(|at| at <= rig.now()));
    let state = State::decode(look.state.expect("it has lost leases")).expect("it can be read");
    assert_eq!((state.claimed, state.lost), (false, 2));
}

async fn the_next_claim_overwrites_its_slot(rig: &mut Rig) {
    rig.arm_due(["a", "b"]).await;
    let first = rig.claim_with(|call| call.limit = 1).await;
    let second = rig.claim_with(|call| call.limit = 1).await;
    assert!(repeat(rig, &first).await.is_empty());
    assert_eq!(repeat(rig, &second).await.keys(), ["b"]);
}

async fn listeners_do_not_share_a_slot(rig: &mut Rig) {
    rig.arm_due(["a", "b"]).await;
    let first = rig.claim_with(|call| call.limit = 1).await;
    rig.claim_with(|call| call.slot = Ids::slot(2)).await;
    assert_eq!(repeat(rig, &first).await.keys(), ["a"]);
}

async fn a_closed_slot_is_gone(rig: &mut Rig) {
    rig.arm_due(["a"]).await;
    let first = rig.claim().await;
    rig.store.release_claimer(&rig.at, first.call.slot).await.expect("it closes");
    assert!(repeat(rig, &first).await.is_empty());
}

async fn a_repeated_replay_answers_as_the_first(rig: &mut Rig) {
    let letter = dead_letter(rig).await;
    let call = rig.replaying(&letter);
    assert_eq!(rig.replay_as(&call).await, Replayed::Replayed);
    let before = rig.look("a").await.map(|look| TimerSnapshot { stamp: ServerTime::default(), ..look });
    rig.pass(ms(5)).await;
    assert_eq!(rig.replay_again(&call).await, Replayed::Replayed);
    let after = rig.look("a").await.map(|look| TimerSnapshot { stamp: ServerTime::default(), ..look });
    assert_eq!(before, after);
}

/// Whatever has become of the timer: and nothing is brought back twice.
async fn a_repeated_replay_answers_as_the_first_when_the_timer_has_ended(rig: &mut Rig) {
    let letter = dead_letter(rig).await;
    let call = rig.replaying(&letter);
    assert_eq!(rig.replay_as(&call).await, Replayed::Replayed);
    rig.pass(ms(1)).await;
    let held = rig.claim().await.one();
    rig.end(&held, dead()).await;
    assert_eq!(rig.replay_again(&call).await, Replayed::Replayed);
    assert_eq!((rig.look("a").await, rig.letters().await.len()), (None, 1), "it is dead, and stays so");
}

async fn a_repeated_replay_that_found_nothing_is_the_replay(rig: &mut Rig) {
    let letter = dead_letter(rig).await;
    let call = rig.replaying(&letter);
    let (timer, _) = rig.arm_in("a", 10).await;
    assert_eq!(rig.replay_as(&call).await, Replayed::Exists);
    rig.cancel("a").await;
    assert_eq!(rig.replay_again(&call).await, Replayed::Replayed);
    assert_ne!(rig.armed("a").await, Some(timer.arming));
}

async fn a_replay_is_remembered_for_ten_minutes(rig: &mut Rig) {
    let letter = dead_letter(rig).await;
    let call = rig.replaying(&letter);
    assert_eq!(rig.replay_as(&call).await, Replayed::Replayed);
    rig.cancel("a").await;
    rig.pass(ms(600_000)).await;
    assert_eq!(rig.replay_again(&call).await, Replayed::Replayed);
    rig.pass(ms(1)).await;
    let (_, reply) = rig.arm_in("b", 10).await;
    assert_eq!(reply.code, ArmCode::Armed);
    rig.cancel("b").await; // which tidies
    assert_eq!(rig.replay_again(&call).await, Replayed::Gone);
}

async fn dead_letter(rig: &mut Rig) -> Bytes {
    let (_, held) = rig.run("a").await;
    rig.end(&held, dead()).await;
    rig.letters().await[0].id.clone()
}
