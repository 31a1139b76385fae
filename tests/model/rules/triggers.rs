//! Trigger keys: set, left alone, deleted, touched.

use std::time::Duration;

use bytes::Bytes;
use keylapse::ArmingId;
use keylapse::store::{Durability, Hint, Trigger, TriggerReply};
use keylapse_support::eventually;

use crate::rig::{Rig, ms};

on_both_stores! {
    a_trigger_tells_of_attempt_and_arming,
    our_own_trigger_is_set_again,
    a_strangers_value_is_left_alone,
    a_past_deadline_sets_nothing_and_clears_our_own,
    a_trigger_is_dropped_by_its_arming_only,
    a_touched_key_that_is_due_expires_and_is_told,
    a_durable_arm_says_how_far_it_got,
}

/// Each test has its own, as tests share a server.
fn key(rig: &Rig) -> String {
    format!("trigger:{}", rig.at.topic)
}

async fn set(rig: &Rig, deadline: u64, attempt: u32, arming: ArmingId) -> TriggerReply {
    let trigger = Trigger { key: Bytes::from(key(rig)), deadline, attempt, arming };
    rig.store.set_triggers(&[trigger]).await.expect("it answers")[0]
}

async fn a_trigger_tells_of_attempt_and_arming(rig: &mut Rig) {
    let arming = rig.ids.arming();
    assert_eq!(set(rig, rig.now() + 60_000, 3, arming).await, TriggerReply::Set);
    let value = format!("{{\"attempt\":3,\"arming\":\"{arming}\"}}");
    assert_eq!(rig.trigger(&key(rig)).await, Some(value));
}

async fn our_own_trigger_is_set_again(rig: &mut Rig) {
    let (first, second) = (rig.ids.arming(), rig.ids.arming());
    set(rig, rig.now() + 60_000, 1, first).await;
    assert_eq!(set(rig, rig.now() + 60_000, 2, second).await, TriggerReply::Set);
    assert!(rig.trigger(&key(rig)).await.expect("it stands").contains(&second.to_string()));
}

async fn a_strangers_value_is_left_alone(rig: &mut Rig) {
    let arming = rig.ids.arming();
    rig.put_foreign(&key(rig), "precious").await;
    assert_eq!(set(rig, rig.now() + 60_000, 1, arming).await, TriggerReply::Foreign);
    assert_eq!(set(rig, rig.now() - 1, 1, arming).await, TriggerReply::Foreign);
    assert!(!rig.store.drop_trigger(key(rig).as_bytes(), arming).await.expect("it answers"));
    assert_eq!(rig.trigger(&key(rig)).await.as_deref(), Some("precious"));
}

async fn a_past_deadline_sets_nothing_and_clears_our_own(rig: &mut Rig) {
    let arming = rig.ids.arming();
    assert_eq!(set(rig, rig.now(), 1, arming).await, TriggerReply::Past);
    assert_eq!(rig.trigger(&key(rig)).await, None);
    set(rig, rig.now() + 60_000, 1, arming).await;
    assert_eq!(set(rig, rig.now(), 2, arming).await, TriggerReply::Past);
    assert_eq!(rig.trigger(&key(rig)).await, None);
}

async fn a_trigger_is_dropped_by_its_arming_only(rig: &mut Rig) {
    let (arming, other, key) = (rig.ids.arming(), rig.ids.arming(), key(rig));
    set(rig, rig.now() + 60_000, 1, arming).await;
    let drop = async |arming| rig.store.drop_trigger(key.as_bytes(), arming).await.expect("it answers");
    assert!(!drop(other).await);
    assert!(drop(arming).await);
    assert!(!drop(arming).await, "it is gone");
}

async fn a_touched_key_that_is_due_expires_and_is_told(rig: &mut Rig) {
    let arming = rig.ids.arming();
    let mut hints = rig.store.hints(std::slice::from_ref(&rig.at));
    // Where canaries are numbered, the first is told before what it proves.
    let mut first = hints.recv().await;
    if matches!(first, Some(Hint::Canary(_))) {
        first = hints.recv().await;
    }
    assert_eq!(first, Some(Hint::Anchored));
    let name = Bytes::from(key(rig));
    set(rig, rig.now() + 5, 1, arming).await;
    rig.pass(ms(6)).await;
    // A server expires keys by the real time, which the test cannot move.
    let (store, heard) = (&rig.store, std::cell::Cell::new(false));
    let hints = std::cell::RefCell::new(hints);
    eventually(Duration::from_secs(10), "the key to expire", async || {
        store.touch(std::slice::from_ref(&name)).await.expect("it can be touched");
        while let Ok(hint) = hints.borrow_mut().try_recv() {
            heard.set(heard.get() || hint == Hint::Expired(name.clone()));
        }
        heard.get()
    })
    .await;
    assert_eq!(rig.trigger(&key(rig)).await, None);
}

async fn a_durable_arm_says_how_far_it_got(rig: &mut Rig) {
    let timer = rig.timer("a", keylapse::WireWhen::In(10));
    let call = keylapse::store::Arm { timers: &[timer], only_if_absent: false, repeat: false };
    let ask = Durability { replicas: 1, local_fsync: false, within_ms: 1 };
    let (armed, reached) = rig.store.arm_durably(&rig.at, call, ask).await.expect("it is armed");
    assert_eq!(armed.value[0].deadline, rig.ceil() + 10);
    assert_eq!((reached.replicas, reached.local_fsync), (0, false), "there is no replica");
}
