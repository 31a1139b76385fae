//! After a cancel nothing of that arming runs.

use crate::model::rig::{ArmCode, Rig, ms, retry};
use crate::produce::{Cancel, Produce};
use keylapse::Cancelled;
use keylapse_wire::time::{MAX_DEADLINE_MS, WireWhen};
use keylapse_wire::{CancelReply, RepairTarget, SettleReply};

on_each_server! {
    a_waiting_timer_is_cancelled,
    what_is_not_there_is_not_armed,
    a_running_attempt_is_fenced,
    a_waiting_retry_is_cancelled,
    a_repeated_cancel_gives_the_first_answer,
    a_repeated_cancel_leaves_what_was_armed_since,
    a_repeated_cancel_that_never_arrived_cancels,
    a_cancel_tells_the_deadline_that_was_to_come,
    a_cancel_of_broken_data_tells_no_deadline,
    several_are_cancelled_in_one_call,
}

async fn a_waiting_timer_is_cancelled(rig: &mut Rig) {
    let (_, armed) = rig.arm_in("a", 10).await;
    let reply = rig.cancel("a").await;
    assert_eq!(reply, CancelReply { result: Cancelled::Cancelled, deadline: Some(armed.deadline) });
    rig.pass(ms(11)).await;
    let taken = rig.claim().await;
    assert_eq!((taken.is_empty(), taken.claimed.orphans), (true, 0));
}

async fn what_is_not_there_is_not_armed(rig: &mut Rig) {
    let reply = rig.cancel("a").await;
    assert_eq!(reply, CancelReply { result: Cancelled::NotArmed, deadline: None });
}

async fn a_running_attempt_is_fenced(rig: &mut Rig) {
    let deadline = rig.ceil();
    let (_, held) = rig.run("a").await;
    let reply = rig.cancel("a").await;
    assert_eq!(reply, CancelReply { result: Cancelled::InFlight, deadline: Some(deadline) });
    assert!(!rig.renew(&held).await);
    assert_eq!(rig.end(&held, retry(0)).await, SettleReply::Gone);
    rig.lose_leases().await;
    assert!(rig.claim_next().await.is_empty());
}

async fn a_waiting_retry_is_cancelled(rig: &mut Rig) {
    let (_, held) = rig.run("a").await;
    let deadline = rig.ceil() + 10;
    rig.end(&held, retry(10)).await;
    let reply = rig.cancel("a").await;
    assert_eq!(reply, CancelReply { result: Cancelled::Cancelled, deadline: Some(deadline) });
    rig.pass(ms(11)).await;
    assert!(rig.claim().await.is_empty());
}

async fn a_repeated_cancel_gives_the_first_answer(rig: &mut Rig) {
    rig.arm_in("waiting", 10).await;
    rig.run("running").await;
    for (key, code) in [("waiting", Cancelled::Cancelled), ("running", Cancelled::InFlight)] {
        let cancel = rig.cancelling(key);
        assert_eq!(rig.cancel_as(&cancel).await.result, code);
        assert_eq!(rig.cancel_as(&cancel).await, CancelReply { result: code, deadline: None });
    }
}

async fn a_repeated_cancel_leaves_what_was_armed_since(rig: &mut Rig) {
    rig.arm_in("a", 10).await;
    let cancel = rig.cancelling("a");
    rig.cancel_as(&cancel).await;
    let (later, reply) = rig.arm_in("a", 10).await;
    assert_eq!(reply.code, ArmCode::Armed);
    rig.cancel_as(&cancel).await;
    assert_eq!(rig.armed("a").await, Some(later.arming));
}

async fn a_repeated_cancel_that_never_arrived_cancels(rig: &mut Rig) {
    let (_, armed) = rig.arm_in("a", 10).await;
    let cancel = rig.cancelling("a");
    let reply = rig.cancel_as(&cancel).await;
    assert_eq!(reply, CancelReply { result: Cancelled::Cancelled, deadline: Some(armed.deadline) });
}

/// By which its trigger key is known.
async fn a_cancel_tells_the_deadline_that_was_to_come(rig: &mut Rig) {
    let at = rig.now() + 500;
    rig.arm_in("a", 10).await;
    let _ = rig.reschedule("a", WireWhen::At(at)).await;
    assert_eq!(rig.cancel("a").await.deadline, Some(at), "it was moved");

    let (_, first) = rig.arm_in("a", 10).await;
    let (_, second) = rig.arm_in("a", 20).await;
    assert_ne!(first.deadline, second.deadline);
    assert_eq!(rig.cancel("a").await.deadline, Some(second.deadline), "it was replaced");

    let at = rig.ceil();
    rig.run("a").await;
    rig.arm_in("a", 900).await;
    assert_eq!(rig.cancel("a").await.deadline, Some(at), "what is kept for later has no trigger key");
}

async fn a_cancel_of_broken_data_tells_no_deadline(rig: &mut Rig) {
    let long = [0xff; 40];
    let beyond = [&[1; 9][..], &MAX_DEADLINE_MS.to_be_bytes()].concat();
    for record in [&b""[..], b"\x01", b"\x01cut short", &long[..16], &long[..17], &long, &beyond] {
        rig.arm_in("a", 10).await;
        rig.put_raw(RepairTarget::Records, b"a", Some(record)).await;
        let reply = rig.cancel("a").await;
        assert_eq!(reply, CancelReply { result: Cancelled::Cancelled, deadline: None }, "{record:?}");
    }
    for (state, told) in [(&b""[..], true), (b"\x01", true), (&[0xfe; 24], true), (&[0xfe; 25], false)] {
        let (_, armed) = rig.arm_in("a", 10).await;
        rig.put_raw(RepairTarget::States, b"a", Some(state)).await;
        let reply = rig.cancel("a").await;
        assert_eq!(reply.deadline, told.then_some(armed.deadline), "{state:?}");
    }
}

async fn several_are_cancelled_in_one_call(rig: &mut Rig) {
    let timers = ["a", "b", "c"].map(|key| rig.timer(key, WireWhen::In(10)));
    rig.arm_all(&timers).await;
    let cancels: Vec<Cancel> = ["c", "x", "a"].map(|key| rig.cancelling(key)).into();
    let replies = rig.store.cancel(&rig.at, &cancels).await.expect("it answers");
    let codes: Vec<Cancelled> = replies.iter().map(|reply| reply.result).collect();
    assert_eq!(codes, [Cancelled::Cancelled, Cancelled::NotArmed, Cancelled::Cancelled]);
    rig.pass(ms(11)).await;
    assert_eq!(rig.claim().await.keys(), ["b"]);
}
