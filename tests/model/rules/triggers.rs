//! Trigger keys: set, left alone, deleted, touched.

use std::time::Duration;

use bytes::Bytes;
use keylapse::inside::receiving::event::Event;
use keylapse::inside::receiving::events;
use keylapse::timers::{Durably, MarkerKey, Reached};
use keylapse_support::eventually;
use keylapse_wire::{MarkerWrite, Op, OpFlags};

use crate::model::rig::{Rig, ms, unix_ms};

on_each_server! {
    a_trigger_tells_of_the_attempt,
    a_replacement_moves_our_trigger,
    a_repeat_finds_its_own_trigger,
    a_retry_takes_the_name_in_the_last_millisecond_of_the_old_key,
    a_first_arm_leaves_a_strangers_counter_alone,
    what_does_not_look_like_ours_is_left_alone_even_by_a_replacement,
    a_past_deadline_sets_nothing_and_clears_our_own,
    a_past_deadline_clears_nothing_of_others,
    a_trigger_is_dropped_by_its_deadline_only,
    only_what_looks_like_ours_is_dropped,
    a_touched_key_that_is_due_expires_and_is_told,
    a_durable_arm_says_how_far_it_got,
}

/// Each test has its own, as tests share a server.
fn key(rig: &Rig) -> String {
    format!("app:trigger:{}", rig.at.topic)
}

async fn send(rig: &Rig, deadline: u64, attempt: u32, moved: bool) -> MarkerKey {
    let trigger = MarkerWrite { key: Bytes::from(key(rig)), deadline, attempt, moved };
    rig.store.set_markers(&[trigger]).await.remove(0)
}

/// For a timer that was not there before.
async fn set(rig: &Rig, deadline: u64, attempt: u32) -> MarkerKey {
    send(rig, deadline, attempt, false).await
}

/// For one that takes the place of another, or was rescheduled.
async fn moved(rig: &Rig, deadline: u64, attempt: u32) -> MarkerKey {
    send(rig, deadline, attempt, true).await
}

async fn drop_of(rig: &Rig, deadline: u64) -> bool {
    rig.store.delete_marker(key(rig).as_bytes(), deadline).await.expect("it answers")
}

async fn value(rig: &Rig) -> Option<String> {
    rig.trigger(&key(rig)).await
}

/// What somebody else has written, and that it expires then.
async fn put_until(rig: &Rig, value: &str, deadline: u64) {
    rig.put_taken(&key(rig), value).await;
    rig.expire_at(&key(rig), deadline).await;
}

async fn a_trigger_tells_of_the_attempt(rig: &mut Rig) {
    let later = rig.now() + 60_000;
    // 0 says that it is as the key tells; where there is none, it is the first.
    for (attempt, told) in
        [(0, "1"), (1, "1"), (9999, "9999"), (10_000, "9999"), (u32::MAX, "9999"), (3, "3"), (0, "3")]
    {
        assert_eq!(moved(rig, later, attempt).await, MarkerKey::Set);
        assert_eq!(value(rig).await.as_deref(), Some(told));
    }
}

async fn a_replacement_moves_our_trigger(rig: &mut Rig) {
    let (first, second) = (rig.now() + 60_000, rig.now() + 90_000);
    set(rig, first, 1).await;
    assert_eq!(set(rig, second, 2).await, MarkerKey::Taken, "nobody has said that there was one");
    assert_eq!(value(rig).await.as_deref(), Some("1"));
    assert_eq!(moved(rig, second, 2).await, MarkerKey::Set);
    assert_eq!(value(rig).await.as_deref(), Some("2"));
    assert!(!drop_of(rig, first).await);
    assert!(drop_of(rig, second).await, "it expires with the timer");
}

async fn a_repeat_finds_its_own_trigger(rig: &mut Rig) {
    let later = rig.now() + 60_000;
    assert_eq!(set(rig, later, 1).await, MarkerKey::Set);
    assert_eq!(set(rig, later, 1).await, MarkerKey::Set);
    assert_eq!(value(rig).await.as_deref(), Some("1"));
}

async fn a_retry_takes_the_name_in_the_last_millisecond_of_the_old_key(rig: &mut Rig) {
    let deadline = rig.now() + 60_000;
    set(rig, deadline, 1).await;
    rig.pass(ms(59_999)).await;
    assert_eq!(set(rig, deadline + 1000, 2).await, MarkerKey::Taken, "a millisecond is left");
    rig.pass(ms(1)).await;
    assert_eq!(rig.now(), deadline);
    assert_eq!(value(rig).await.as_deref(), Some("1"), "it is still there");
    assert_eq!(set(rig, deadline + 1000, 2).await, MarkerKey::Set);
    assert_eq!(value(rig).await.as_deref(), Some("2"));
}

async fn a_first_arm_leaves_a_strangers_counter_alone(rig: &mut Rig) {
    let (theirs, later) = (rig.now() + 90_000, rig.now() + 60_000);
    for number in ["1", "42", "9999"] {
        put_until(rig, number, theirs).await;
        assert_eq!(set(rig, later, 1).await, MarkerKey::Taken);
        assert_eq!(set(rig, rig.now(), 1).await, MarkerKey::Taken);
        assert!(!drop_of(rig, later).await);
        assert_eq!(value(rig).await.as_deref(), Some(number));
    }
    // Nor has it become one of ours, with another time to live.
    assert!(drop_of(rig, theirs).await);
}

async fn what_does_not_look_like_ours_is_left_alone_even_by_a_replacement(rig: &mut Rig) {
    let later = rig.now() + 60_000;
    let big = "1".repeat(1 << 20);
    for theirs in
        ["precious", "", "0", "01", "-1", "+1", "1.0", " 1", "1\n", "1x", "x1", "10000", "١", "1\0", &big]
    {
        put_until(rig, theirs, later).await;
        assert_eq!(set(rig, later, 1).await, MarkerKey::Taken, "{theirs:?}");
        assert_eq!(moved(rig, later, 1).await, MarkerKey::Taken, "{theirs:?}");
        assert_eq!(moved(rig, rig.now(), 1).await, MarkerKey::Taken, "{theirs:?}");
        assert_eq!(value(rig).await.as_deref(), Some(theirs));
    }
    for without_an_expiry in ["1", "9999"] {
        rig.put_taken(&key(rig), without_an_expiry).await;
        assert_eq!(set(rig, later, 1).await, MarkerKey::Taken);
        assert_eq!(moved(rig, later, 1).await, MarkerKey::Taken);
        assert_eq!(moved(rig, rig.now(), 1).await, MarkerKey::Taken);
        assert_eq!(value(rig).await.as_deref(), Some(without_an_expiry));
    }
}

async fn a_past_deadline_sets_nothing_and_clears_our_own(rig: &mut Rig) {
    assert_eq!(set(rig, rig.now(), 1).await, MarkerKey::None);
    assert_eq!(value(rig).await, None);
    set(rig, rig.now() + 60_000, 1).await;
    assert_eq!(moved(rig, rig.now(), 2).await, MarkerKey::None);
    assert_eq!(value(rig).await, None);
    set(rig, rig.now() + 60_000, 1).await;
    rig.pass(ms(60_000)).await;
    assert_eq!(set(rig, rig.now(), 2).await, MarkerKey::None, "nor is one left in its last millisecond");
    assert_eq!(value(rig).await, None);
}

async fn a_past_deadline_clears_nothing_of_others(rig: &mut Rig) {
    put_until(rig, "1", rig.now() + 60_000).await;
    assert_eq!(set(rig, rig.now() - 1, 1).await, MarkerKey::Taken);
    assert_eq!(value(rig).await.as_deref(), Some("1"));
}

async fn a_trigger_is_dropped_by_its_deadline_only(rig: &mut Rig) {
    let deadline = rig.now() + 60_000;
    set(rig, deadline, 1).await;
    for wrong in [0, deadline - 1, deadline + 1] {
        assert!(!drop_of(rig, wrong).await);
    }
    assert_eq!(value(rig).await.as_deref(), Some("1"));
    assert!(drop_of(rig, deadline).await);
    assert_eq!(value(rig).await, None);
    assert!(!drop_of(rig, deadline).await, "it is gone");
}

async fn only_what_looks_like_ours_is_dropped(rig: &mut Rig) {
    let deadline = rig.now() + 60_000;
    for theirs in ["precious", "01", "10000", "0", ""] {
        put_until(rig, theirs, deadline).await;
        assert!(!drop_of(rig, deadline).await);
        assert_eq!(value(rig).await.as_deref(), Some(theirs));
    }
    rig.put_taken(&key(rig), "1").await;
    assert!(!drop_of(rig, deadline).await, "it does not expire");
    assert_eq!(value(rig).await.as_deref(), Some("1"));
}

async fn a_touched_key_that_is_due_expires_and_is_told(rig: &mut Rig) {
    let mut events = events(&rig.store, std::slice::from_ref(&rig.at));
    assert_eq!(events.recv().await, Some(Event::Joined));
    // Where heartbeats are numbered, the first is reported before what it proves.
    let mut first = events.recv().await;
    if matches!(first, Some(Event::Canary(_))) {
        first = events.recv().await;
    }
    assert_eq!(first, Some(Event::Anchored));
    let name = Bytes::from(key(rig));
    // A server expires keys by the real time, which the test cannot move. What has passed by it when it is
    // set is announced by Redis when it is next read, and never by Valkey since 8.0.
    rig.catch_up().await;
    assert_eq!(set(rig, rig.now() + 1000, 1).await, MarkerKey::Set);
    rig.pass(ms(1001)).await;
    let (store, heard) = (&rig.store, std::cell::Cell::new(false));
    let events = std::cell::RefCell::new(events);
    eventually(Duration::from_secs(10), "the key to expire", async || {
        store.check_markers(std::slice::from_ref(&name)).await.expect("it can be touched");
        while let Ok(event) = events.borrow_mut().try_recv() {
            heard.set(heard.get() || event == Event::Expired(name.clone()));
        }
        heard.get()
    })
    .await;
    assert_eq!(rig.trigger(&key(rig)).await, None);
}

async fn a_durable_arm_says_how_far_it_got(rig: &mut Rig) {
    let timer = rig.timer("a", keylapse_wire::time::WireWhen::In(10));
    let ask = Durably::replicas(1).within(ms(1));
    let (flags, op) = (OpFlags::default(), Op::Arm(timer));
    let armed = rig.store.arm_durably(&rig.at, flags, &op, ask).await.expect("it is armed");
    let receipt = armed.receipt().expect("it is armed");
    assert_eq!(unix_ms(receipt.deadline), rig.ceil() + 10);
    assert_eq!(receipt.reached, Some(Reached { replicas: 0, local_fsync: false }), "there is no replica");
}
