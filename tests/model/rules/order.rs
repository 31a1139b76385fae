//! In which order timers come out.

use std::time::Duration;

use bytes::Bytes;
use keylapse_wire::NewTimer;
use keylapse_wire::time::WireWhen;

use crate::model::rig::{Rig, ms};

on_each_server! {
    earlier_deadlines_come_first,
    one_call_keeps_its_order_within_a_millisecond,
    calls_of_one_millisecond_keep_their_order,
    a_call_of_many_keeps_its_order_however_late_in_a_millisecond,
}

/// So many timers for one deadline, the keys falling.
fn falling(rig: &mut Rig, count: u32) -> Vec<NewTimer> {
    let deadline = rig.ceil() + 5;
    (0..count).rev().map(|n| rig.timer(&format!("{n:04}"), WireWhen::At(deadline))).collect()
}

fn keys_of(timers: &[NewTimer]) -> Vec<Bytes> {
    timers.iter().map(|timer| timer.key.clone()).collect()
}

async fn earlier_deadlines_come_first(rig: &mut Rig) {
    for (key, delay) in [("c", 30), ("a", 20), ("b", 10)] {
        rig.arm_in(key, delay).await;
    }
    rig.pass(ms(31)).await;
    assert_eq!(rig.claim().await.keys(), ["b", "a", "c"]);
}

async fn one_call_keeps_its_order_within_a_millisecond(rig: &mut Rig) {
    let timers = falling(rig, 100);
    rig.arm_all(&timers).await;
    rig.pass(ms(6)).await;
    assert_eq!(rig.claim().await.keys(), keys_of(&timers));
}

/// A script takes more than a microsecond.
async fn calls_of_one_millisecond_keep_their_order(rig: &mut Rig) {
    let timers = falling(rig, 10);
    for timer in &timers {
        rig.arm_all(std::slice::from_ref(timer)).await;
        rig.pass(Duration::from_micros(1)).await;
    }
    rig.pass(ms(6)).await;
    assert_eq!(rig.claim().await.keys(), keys_of(&timers));
}

async fn a_call_of_many_keeps_its_order_however_late_in_a_millisecond(rig: &mut Rig) {
    let left = 999 - rig.micros() % 1000;
    rig.pass(Duration::from_micros(left)).await;
    let timers = falling(rig, 900);
    rig.arm_all(&timers).await;
    rig.pass(ms(6)).await;
    assert_eq!(rig.claim().await.keys(), keys_of(&timers));
}
