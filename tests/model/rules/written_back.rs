//! Attached keys that are written back for their retries, and what their writers do meanwhile.

use bytes::Bytes;
use keylapse::timers::MarkerKey;
use keylapse_wire::record::State;
use keylapse_wire::{AttemptEnd, LeaseRef, RepairTarget};
use keylapse_wire::{RecordedExpiry, TrackResult};

use crate::model::rig::{Rig, ms, retry, snooze};

on_each_server! {
    what_is_written_back_has_its_value_again,
    one_announcement_of_a_deadline_is_that_of_the_key_written_back,
    an_announcement_without_an_anchor_is_that_of_the_key_written_back,
    an_announcement_that_was_heard_is_not_expected_any_more,
    an_announcement_is_expected_once_though_it_is_said_twice,
    a_retry_is_superseded_by_a_key_that_was_read_however_late,
    a_running_retry_is_not_superseded,
    a_lapse_starts_over_whatever_state_is_left,
    a_retry_without_a_history_was_written_back_like_others,
    a_first_attempt_was_not_written_back,
    a_retry_without_a_deadline_was_not_written_back,
}

/// The first attempt for `a` runs, as an expiry was heard behind this canary.
async fn run_lapse(rig: &mut Rig, canary: u64) -> LeaseRef {
    rig.attach();
    assert_eq!(rig.note(canary, 1).await, RecordedExpiry::Lapse);
    rig.claim().await.one()
}

/// That attempt has failed; until when `a` is written back.
async fn written_back(rig: &mut Rig) -> u64 {
    let held = run_lapse(rig, rig.now()).await;
    rig.end(&held, retry(1000)).await;
    rig.ceil() + 1000
}

async fn pass_until(rig: &mut Rig, deadline: u64) {
    rig.pass(ms(deadline - rig.now())).await;
}

async fn what_is_written_back_has_its_value_again(rig: &mut Rig) {
    let key = format!("app:written:{}", rig.at.topic);
    let later = rig.now() + 60_000;
    assert_eq!(rig.write_back(&key, later, b"\x02value").await, MarkerKey::Set);
    assert_eq!(rig.trigger(&key).await.as_deref(), Some("value"));
    assert_eq!(rig.write_back(&key, later, b"\x02other").await, MarkerKey::Taken);
    assert_eq!(rig.trigger(&key).await.as_deref(), Some("value"));
}

async fn one_announcement_of_a_deadline_is_that_of_the_key_written_back(rig: &mut Rig) {
    let until = written_back(rig).await;
    let retried = rig.armed("a").await;
    pass_until(rig, until).await;
    assert_eq!(rig.note(until, 1).await, RecordedExpiry::Returned);
    // In the same millisecond: a new key has expired, and the retry runs first.
    assert_eq!(rig.note(until, 2).await, RecordedExpiry::Lapse);
    assert_eq!(rig.armed("a").await, retried);
    assert!(rig.look("a").await.expect("it waits").next.is_some());
}

async fn an_announcement_without_an_anchor_is_that_of_the_key_written_back(rig: &mut Rig) {
    let until = written_back(rig).await;
    let retried = rig.armed("a").await;
    pass_until(rig, until).await;
    assert_eq!(rig.note_unanchored().await, RecordedExpiry::Returned);
    assert_eq!(rig.note_unanchored().await, RecordedExpiry::Lapse);
    assert_eq!(rig.armed("a").await, retried);
}

async fn an_announcement_that_was_heard_is_not_expected_any_more(rig: &mut Rig) {
    let until = written_back(rig).await;
    pass_until(rig, until).await;
    assert_eq!(rig.note(until, 1).await, RecordedExpiry::Returned);
    assert!(!rig.returned(until).await);
    assert_eq!(rig.note(until, 2).await, RecordedExpiry::Lapse);
}

async fn an_announcement_is_expected_once_though_it_is_said_twice(rig: &mut Rig) {
    let until = written_back(rig).await;
    pass_until(rig, until).await;
    let retrying = rig.claim().await.one();
    assert!(rig.returned(until).await);
    assert!(!rig.returned(until).await, "that was a repeat");
    rig.ack(&[retrying]).await;
    assert_eq!(rig.note(until, 1).await, RecordedExpiry::Returned);
    assert_eq!(rig.note(until, 2).await, RecordedExpiry::Lapse);
}

async fn a_retry_is_superseded_by_a_key_that_was_read_however_late(rig: &mut Rig) {
    let canary = rig.now();
    let held = run_lapse(rig, canary).await;
    // Its writer has created it again while the attempt runs.
    assert_eq!(rig.read(canary + 500, canary, 1).await.0, TrackResult::New);
    rig.end(&held, retry(1000)).await;
    let retried = rig.armed("a").await;
    rig.pass(ms(2000)).await;
    assert_eq!(rig.note(canary, 2).await, RecordedExpiry::Superseding);
    assert_ne!(rig.armed("a").await, retried);
    assert_eq!(rig.look("a").await.expect("it waits").next, None);
}

async fn a_running_retry_is_not_superseded(rig: &mut Rig) {
    let until = written_back(rig).await;
    pass_until(rig, until).await;
    let retrying = rig.claim().await.one();
    rig.read(until + 500, until, 0).await;
    rig.pass(ms(500)).await;
    assert_eq!(rig.note(until, 1).await, RecordedExpiry::Lapse);
    let acked = rig.ack(&[retrying]).await;
    assert_eq!((acked.gone.len(), acked.followed.len()), (0, 1), "it follows");
}

async fn a_lapse_starts_over_whatever_state_is_left(rig: &mut Rig) {
    rig.attach();
    rig.put_raw(RepairTarget::States, b"a", Some(&State::waiting(7).encode())).await;
    assert_eq!(rig.note(rig.now(), 1).await, RecordedExpiry::Lapse);
    assert_eq!(rig.claim().await.claimed.timers[0].state, None, "this is a first attempt");
}

async fn a_retry_without_a_history_was_written_back_like_others(rig: &mut Rig) {
    let canary = rig.now();
    let held = run_lapse(rig, canary).await;
    rig.end(&held, AttemptEnd::Retry { delay: 1000, attempt: 2, snoozes: 0, history: Bytes::new() }).await;
    assert_eq!(rig.read(rig.ceil() + 1000, canary, 1).await.0, TrackResult::WrittenBack);
}

async fn a_first_attempt_was_not_written_back(rig: &mut Rig) {
    let canary = rig.now();
    let held = run_lapse(rig, canary).await;
    rig.end(&held, snooze(1000)).await;
    let snoozed = rig.armed("a").await;
    assert_eq!(rig.read(rig.ceil() + 1000, canary, 1).await.0, TrackResult::New, "it is its writer's");
    assert_eq!(rig.armed("a").await, snoozed, "which ends no snooze");
}

async fn a_retry_without_a_deadline_was_not_written_back(rig: &mut Rig) {
    let canary = rig.now();
    run_lapse(rig, canary).await;
    let lapse = rig.armed("a").await;
    rig.put_raw(RepairTarget::States, b"a", Some(&State::waiting(2).encode())).await;
    assert_eq!(rig.read(canary + 500, canary, 1).await.0, TrackResult::New);
    assert_eq!(rig.armed("a").await, lapse);
}
