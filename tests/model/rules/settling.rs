//! The ends of attempts.

use bytes::Bytes;
use keylapse::dead_letters::DeadReason;
use keylapse_connection::id::Token;
use keylapse_wire::record::{Record, State, StoredDeadLetter};
use keylapse_wire::{AckReply, AttemptEnd, LeaseRef, Settle, SettleReply};

use crate::model::rig::{LETTERS, Rig, dead, letter_name, ms, retry};

on_each_server! {
    an_ack_removes_the_timer,
    acks_are_judged_one_by_one,
    a_retry_waits_from_the_next_whole_millisecond,
    a_snooze_keeps_the_attempt,
    running_again_is_a_new_arming_with_the_same_payload,
    running_again_leaves_the_quarantine,
    a_death_keeps_record_state_and_history,
    a_release_hands_back_at_the_old_deadline,
    a_release_hands_a_retry_back_at_its_own_deadline,
    ends_of_several_kinds_share_a_call,
}

async fn an_ack_removes_the_timer(rig: &mut Rig) {
    let (_, held) = rig.run("a").await;
    assert_eq!(rig.ack(std::slice::from_ref(&held)).await, AckReply::default());
    assert_eq!(rig.look("a").await, None);
    assert_eq!(rig.ack(&[held]).await.gone, [0], "it is done for good");
}

async fn acks_are_judged_one_by_one(rig: &mut Rig) {
    let (_, a) = rig.run("a").await;
    let (_, b) = rig.run("b").await;
    let wrong = LeaseRef { key: a.key.clone(), token: b.token };
    let reply = rig.ack(&[wrong, b, a]).await;
    assert_eq!((reply.gone, reply.followed), (vec![0], vec![]));
    assert_eq!((rig.look("a").await, rig.look("b").await), (None, None));
}

async fn a_retry_waits_from_the_next_whole_millisecond(rig: &mut Rig) {
    let (timer, held) = rig.run("a").await;
    let deadline = rig.now() + 1 + 10;
    assert_eq!(rig.end(&held, retry(10)).await, SettleReply::Settled(Some((deadline, timer.arming))));
    rig.pass(ms(10)).await;
    assert!(rig.claim().await.is_empty());
    rig.pass(ms(1)).await;
    let taken = rig.claim().await;
    let retried = State { deadline, history: Bytes::from_static(b"[1]"), ..State::waiting(2) };
    let token = taken.call.token;
    assert_eq!(taken.state(), State { claimed: true, token, ..retried });
}

async fn a_snooze_keeps_the_attempt(rig: &mut Rig) {
    let (_, held) = rig.run("a").await;
    let history = Bytes::from_static(b"[1]");
    rig.end(&held, AttemptEnd::Snooze { delay: 10, attempt: 7, snoozes: 3, history: history.clone() }).await;
    rig.pass(ms(11)).await;
    let state = rig.claim().await.state();
    assert_eq!((state.attempt, state.snoozes, state.history), (7, 3, history));
}

async fn running_again_is_a_new_arming_with_the_same_payload(rig: &mut Rig) {
    let (timer, held) = rig.run("a").await;
    let (arming, deadline) = (rig.ids.arming(), rig.ceil() + 10);
    let again = AttemptEnd::Again { delay: 10, arming };
    assert_eq!(rig.end(&held, again).await, SettleReply::Settled(Some((deadline, arming))));
    rig.pass(ms(11)).await;
    let taken = rig.claim().await;
    let record = Record { arming, deadline, payload: timer.payload };
    assert_eq!(taken.claimed.timers[0].record, record.encode());
    assert_eq!(taken.claimed.timers[0].state, None, "the attempts start over");
}

async fn running_again_leaves_the_quarantine(rig: &mut Rig) {
    rig.lose("a", 3).await;
    let held = rig.claim_quarantined().await.one();
    let arming = rig.ids.arming();
    rig.end(&held, AttemptEnd::Again { delay: 0, arming }).await;
    rig.pass(ms(1)).await;
    let taken = rig.claim().await;
    assert_eq!((taken.state().lost, taken.claimed.heads.quarantine), (0, None), "it is in one index only");
}

async fn a_death_keeps_record_state_and_history(rig: &mut Rig) {
    let (timer, held) = rig.run("a").await;
    rig.end(&held, retry(0)).await;
    rig.pass(ms(1)).await;
    let taken = rig.claim().await;
    assert_eq!(rig.end(&taken.one(), dead()).await, SettleReply::Settled(None));
    assert_eq!(rig.look("a").await, None);

    let letters = rig.letters().await;
    assert_eq!(letters[0].id, letter_name(timer.arming, rig.now(), b"a"));
    let letter = StoredDeadLetter::decode(letters[0].letter.clone()).expect("it can be read");
    assert_eq!((letter.reason, letter.died), (DeadReason::Permanent, rig.now()));
    assert_eq!(letter.record, taken.claimed.timers[0].record);
    let nobody = Token::from_bytes(&[0; 8]).expect("it has 8 bytes");
    let last = State { claimed: false, token: nobody, history: Bytes::from_static(b"[2]"), ..taken.state() };
    assert_eq!(State::decode(letter.state), Ok(last));
}

async fn a_release_hands_back_at_the_old_deadline(rig: &mut Rig) {
    let (timer, reply) = rig.arm_in("a", 8).await;
    let held = rig.claim_with(|call| call.lookahead_ms = 10).await.one();
    let released = rig.end(&held, AttemptEnd::Release).await;
    assert_eq!(released, SettleReply::Settled(Some((reply.deadline, timer.arming))));
    assert!(rig.claim().await.is_empty(), "it is not due yet");
    rig.pass(ms(9)).await;
    assert_eq!(rig.claim().await.state().attempt, 1, "no attempt was used up");
}

async fn a_release_hands_a_retry_back_at_its_own_deadline(rig: &mut Rig) {
    let (timer, held) = rig.run("a").await;
    rig.end(&held, retry(10)).await;
    let deadline = rig.ceil() + 10;
    rig.pass(ms(500)).await;
    let held = rig.claim().await.one();
    let released = rig.end(&held, AttemptEnd::Release).await;
    assert_eq!(released, SettleReply::Settled(Some((deadline, timer.arming))));
    assert_eq!(rig.claim().await.state().attempt, 2);
}

async fn ends_of_several_kinds_share_a_call(rig: &mut Rig) {
    let timers = rig.arm_due(["a", "b", "c", "d"]).await;
    let mut held = rig.claim().await.held();
    held[3].token = rig.ids.token();
    let ends = [retry(5), dead(), AttemptEnd::Release, retry(5)];
    let ends: Vec<Settle> = held.into_iter().zip(ends).map(|(held, end)| Settle { held, end }).collect();
    let replies = rig.store.settle(&rig.at, LETTERS, false, &ends).await.expect("it can be settled").each;
    let retried = SettleReply::Settled(Some((rig.ceil() + 5, timers[0].arming)));
    let released = SettleReply::Settled(Some((rig.now(), timers[2].arming)));
    assert_eq!(replies, [retried, SettleReply::Settled(None), released, SettleReply::Gone]);
}
