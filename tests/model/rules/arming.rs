//! When timers come due, and what becomes of those that are armed over.

use crate::model::rig::{ArmCode, ArmReply, Rig, ms, system_time};
use crate::produce::Produce;
use bytes::Bytes;
use keylapse::{ErrorKind, Rescheduled};
use keylapse_wire::AttemptEnd;
use keylapse_wire::record::Record;
use keylapse_wire::time::{MAX_DEADLINE_MS, WireWhen};

on_each_server! {
    a_delay_counts_from_the_next_whole_millisecond,
    a_timer_is_not_claimed_before_its_deadline,
    a_claim_may_look_ahead,
    a_time_that_has_passed_means_now,
    a_deadline_after_2248_is_refused_alone,
    a_record_says_what_was_armed,
    arming_again_replaces,
    arming_over_a_waiting_retry_starts_over,
    if_absent_leaves_a_waiting_timer,
    if_absent_over_a_running_attempt_says_exists,
    rescheduling_keeps_arming_payload_and_attempt,
    rescheduling_what_was_never_tried_is_as_arming_it_for_then,
    rescheduling_what_was_handed_back_untried_leaves_no_state,
    rescheduling_to_a_time_too_far_is_refused,
    a_running_attempt_is_not_rescheduled,
    what_is_not_there_is_not_rescheduled,
}

async fn a_delay_counts_from_the_next_whole_millisecond(rig: &mut Rig) {
    let (_, reply) = rig.arm_in("a", 10).await;
    assert_eq!(reply.deadline, rig.now() + 1 + 10, "a quarter of this millisecond is over");
}

async fn a_timer_is_not_claimed_before_its_deadline(rig: &mut Rig) {
    let (_, reply) = rig.arm_in("a", 10).await;
    rig.pass(ms(10)).await;
    assert_eq!(rig.now(), reply.deadline - 1);
    assert_eq!(rig.finds_nothing().await.due, Some(reply.deadline), "it says when to come back");
    rig.pass(ms(1)).await;
    assert_eq!(rig.claim().await.keys(), ["a"]);
}

async fn a_claim_may_look_ahead(rig: &mut Rig) {
    rig.arm_in("near", 9).await;
    rig.arm_in("far", 10).await;
    let taken = rig.claim_with(|call| call.lookahead_ms = 10).await;
    assert_eq!(taken.keys(), ["near"]);
}

async fn a_time_that_has_passed_means_now(rig: &mut Rig) {
    let past = rig.timer("a", WireWhen::At(rig.now() - 1000));
    let reply = rig.arm_all(&[past]).await[0];
    assert_eq!((reply.code, reply.deadline), (ArmCode::Armed, rig.ceil()));
}

async fn a_deadline_after_2248_is_refused_alone(rig: &mut Rig) {
    for when in [WireWhen::At(MAX_DEADLINE_MS), WireWhen::In(MAX_DEADLINE_MS), WireWhen::In(u64::MAX)] {
        let near = rig.timer("near", WireWhen::In(1));
        let far = rig.timer("far", when);
        assert_eq!(rig.arm_all(std::slice::from_ref(&far)).await[0].code, ArmCode::TooFar);
        let armed = rig.arm_all(&[far, near.clone()]).await;
        assert_eq!(armed[0], ArmReply { code: ArmCode::TooFar, deadline: 0 });
        assert_eq!(rig.armed("near").await, Some(near.arming));
        assert_eq!(rig.look("far").await, None);
    }
    let last = rig.timer("last", WireWhen::At(MAX_DEADLINE_MS - 1));
    assert_eq!(rig.arm_all(&[last]).await[0].deadline, MAX_DEADLINE_MS - 1);
}

async fn a_record_says_what_was_armed(rig: &mut Rig) {
    let (timer, reply) = rig.arm_in("a", 10).await;
    rig.pass(ms(11)).await;
    let taken = rig.claim().await;
    let record = Record { arming: timer.arming, deadline: reply.deadline, payload: timer.payload };
    assert_eq!(taken.claimed.timers[0].record, record.encode());
    assert_eq!(taken.claimed.timers[0].state, None, "this is a first attempt");
}

async fn arming_again_replaces(rig: &mut Rig) {
    rig.arm_in("a", 10).await;
    let (second, reply) = rig.arm_in("a", 20).await;
    assert_eq!(reply.code, ArmCode::Replaced);
    rig.pass(ms(11)).await;
    assert!(rig.claim().await.is_empty(), "the first deadline is of no more interest");
    rig.pass(ms(10)).await;
    assert_eq!(rig.claim().await.keys(), ["a"]);
    assert_eq!(rig.armed("a").await, Some(second.arming));
}

async fn arming_over_a_waiting_retry_starts_over(rig: &mut Rig) {
    let (_, held) = rig.run("a").await;
    rig.end(&held, crate::model::rig::retry(500)).await;
    assert_eq!(rig.arm_in("a", 10).await.1.code, ArmCode::Replaced);
    rig.pass(ms(11)).await;
    assert_eq!(rig.claim().await.claimed.timers[0].state, None, "this is a first attempt");
}

async fn if_absent_leaves_a_waiting_timer(rig: &mut Rig) {
    let (first, _) = rig.arm_in("a", 10).await;
    let second = rig.timer("a", WireWhen::In(20));
    assert_eq!(rig.arm_if_absent(&second).await.code, ArmCode::Exists);
    assert_eq!(rig.armed("a").await, Some(first.arming));
    let other = rig.timer("b", WireWhen::In(20));
    assert_eq!(rig.arm_if_absent(&other).await.code, ArmCode::Armed);
}

async fn if_absent_over_a_running_attempt_says_exists(rig: &mut Rig) {
    rig.run("a").await;
    let second = rig.timer("a", WireWhen::In(20));
    assert_eq!(rig.arm_if_absent(&second).await.code, ArmCode::Exists);
    assert_eq!(rig.look("a").await.and_then(|look| look.next), None);
}

async fn rescheduling_keeps_arming_payload_and_attempt(rig: &mut Rig) {
    let (timer, held) = rig.run("a").await;
    rig.end(&held, crate::model::rig::retry(1000)).await;
    let moved = rig.reschedule("a", WireWhen::In(5)).await;
    let deadline = rig.ceil() + 5;
    assert_eq!(moved, Rescheduled::Rescheduled(system_time(deadline)));
    assert_eq!(rig.armed("a").await, Some(timer.arming));
    rig.pass(ms(6)).await;
    let taken = rig.claim().await;
    assert_eq!((taken.state().attempt, taken.state().deadline), (2, deadline));
    assert_eq!(taken.state().history, Bytes::from_static(b"[1]"));
}

async fn rescheduling_what_was_never_tried_is_as_arming_it_for_then(rig: &mut Rig) {
    let (timer, _) = rig.arm_in("a", 10).await;
    let _ = rig.reschedule("a", WireWhen::In(500)).await;
    let deadline = rig.ceil() + 500;
    let look = rig.look("a").await.expect("it waits");
    let record = Record { arming: timer.arming, deadline, payload: timer.payload };
    assert_eq!((look.record, look.state), (record.encode(), None), "its age counts from then");
}

async fn rescheduling_what_was_handed_back_untried_leaves_no_state(rig: &mut Rig) {
    let (_, held) = rig.run("a").await;
    rig.end(&held, AttemptEnd::Release).await;
    assert!(rig.look("a").await.expect("it waits").state.is_some());
    let _ = rig.reschedule("a", WireWhen::In(500)).await;
    assert_eq!(rig.look("a").await.expect("it waits").state, None, "each costs bytes");
}

async fn rescheduling_to_a_time_too_far_is_refused(rig: &mut Rig) {
    rig.arm_in("a", 10).await;
    let refused = rig.store.reschedule(&rig.at, b"a", WireWhen::At(MAX_DEADLINE_MS)).await;
    assert_eq!(refused.expect_err("it is too far").kind(), ErrorKind::Invalid);
}

async fn a_running_attempt_is_not_rescheduled(rig: &mut Rig) {
    rig.run("a").await;
    assert_eq!(rig.reschedule("a", WireWhen::In(5)).await, Rescheduled::InFlight);
}

async fn what_is_not_there_is_not_rescheduled(rig: &mut Rig) {
    assert_eq!(rig.reschedule("a", WireWhen::In(5)).await, Rescheduled::NotArmed);
}
