//! A topic is destroyed: it is closed, taken apart, and nothing that comes later finds half of it.

use bytes::Bytes;
use keylapse::inside::receiving::event::Event;
use keylapse::{Cancelled, ErrorKind};
use keylapse_connection::id::DestroyId;
use keylapse_wire::RecordedExpiry;
use keylapse_wire::names::{DEFAULT_NAMESPACE, NAMES, PartitionNames};
use keylapse_wire::time::WireWhen;
use keylapse_wire::{CloseMode, DestroyStep, Holdings, OpFlags, RepairTarget, Settle, SettleReply};

use crate::model::rig::{ArmCode, Events, LETTERS, Rig, ask, dead, ms, retry};
use crate::produce::Produce;

on_each_server! {
    what_is_armed_is_closed_by_force_alone,
    what_is_closed_refuses_every_call_and_changes_nothing,
    what_was_closed_empty_is_opened_again_as_it_was,
    what_was_closed_by_force_is_opened_under_its_id_alone,
    the_first_partition_keeps_the_id_of_whoever_came_first,
    timers_go_page_by_page_and_the_rest_at_the_end,
    whoever_runs_is_told_and_settles_nothing_afterwards,
    an_arm_after_the_end_is_a_new_beginning,
    what_is_detached_may_have_enrolled_keys_but_no_timer_and_no_letter,
    nothing_is_taken_from_what_is_open,
    a_partition_that_never_was_is_closed_and_ended,
    another_number_of_partitions_or_kind_is_refused,
}

fn id(byte: u8) -> DestroyId {
    DestroyId::from_bytes(&[byte; 8]).expect("an id has eight bytes")
}

async fn close(rig: &Rig, how: CloseMode) -> Holdings {
    rig.store.close(&rig.at, how).await.expect("it can be asked")
}

async fn destroy(rig: &Rig, gone: &[&str], most: usize) -> DestroyStep {
    let gone: Vec<_> = gone.iter().map(|key| Bytes::copy_from_slice(key.as_bytes())).collect();
    rig.store.destroy(&rig.at, &gone, most).await.expect("it is answered")
}

/// The names of the partition that there are.
async fn names(rig: &Rig) -> Vec<&'static str> {
    let mut there = Vec::new();
    for (name, _) in NAMES {
        if rig.exists(rig.at.key(name)).await {
            there.push(name);
        }
    }
    there
}

async fn what_is_armed_is_closed_by_force_alone(rig: &mut Rig) {
    rig.arm_in("a", 1000).await;
    let refused = close(rig, CloseMode::Empty).await;
    assert_eq!((refused.closed, refused.timers), (false, 1));
    assert_eq!(rig.arm_in("b", 1000).await.1.code, ArmCode::Armed, "it is as open as before");
    let closed = close(rig, CloseMode::ByForce(id(1))).await;
    assert_eq!((closed.closed, closed.forced, closed.timers), (true, Some(id(1)), 2));
    assert!(close(rig, CloseMode::Empty).await.closed, "another goes on with it");
}

async fn what_is_closed_refuses_every_call_and_changes_nothing(rig: &mut Rig) {
    let (_, held) = rig.run("running").await;
    rig.arm_in("waiting", 1000).await;
    close(rig, CloseMode::ByForce(id(1))).await;
    let before = names(rig).await;
    let cancel = rig.cancelling("waiting");
    let new = rig.timer("new", WireWhen::In(0));
    let claim = ask(&mut rig.ids);
    let (store, at) = (&rig.store, &rig.at);
    let settle = Settle { held: held.clone(), end: retry(10) };
    let errors = [
        store.arm(at, OpFlags::default(), &[new]).await.map(drop),
        store.claim(at, claim).await.map(drop),
        store.ack(at, false, std::slice::from_ref(&held)).await.map(drop),
        store.settle(at, LETTERS, false, &[settle]).await.map(drop),
        store.renew(at, 1000, &[held]).await.map(drop),
        store.cancel(at, &[cancel]).await.map(drop),
        store.reschedule(at, b"waiting", WireWhen::In(5)).await.map(drop),
        store.pause(at, Some("why")).await.map(drop),
        store.get_timer(at, b"waiting").await.map(drop),
    ];
    for error in errors {
        let error = error.expect_err("it is closed");
        assert_eq!(error.kind(), ErrorKind::Destroying, "{error}");
        assert!(error.is_transient() && error.to_string().contains("call Console::destroy"), "{error}");
    }
    assert!(rig.repair(RepairTarget::Records).await.is_err());
    assert_eq!(names(rig).await, before);
    assert_eq!((rig.length("timers").await, rig.length("timer_states").await), (2, 1));
}

async fn what_was_closed_empty_is_opened_again_as_it_was(rig: &mut Rig) {
    let (_, held) = rig.run("a").await;
    rig.end(&held, dead()).await;
    let closed = close(rig, CloseMode::Empty).await;
    assert_eq!(
        (closed.closed, closed.forced, closed.letters),
        (true, None, 1),
        "a letter is no reason to refuse"
    );
    assert!(rig.store.get_timer(&rig.at, b"a").await.is_err());
    assert!(!close(rig, CloseMode::Open(None)).await.closed);
    assert_eq!(rig.letters().await.len(), 1);
    assert_eq!(rig.arm_in("a", 1000).await.1.code, ArmCode::Armed);
}

async fn what_was_closed_by_force_is_opened_under_its_id_alone(rig: &mut Rig) {
    rig.arm_in("a", 1000).await;
    close(rig, CloseMode::ByForce(id(1))).await;
    for other in [None, Some(id(2))] {
        assert!(close(rig, CloseMode::Open(other)).await.closed, "{other:?}");
    }
    let opened = close(rig, CloseMode::Open(Some(id(1)))).await;
    assert_eq!((opened.closed, opened.forced, opened.timers), (false, None, 1));
    assert!(!close(rig, CloseMode::Empty).await.closed);
    rig.cancel("a").await;
    let closed = close(rig, CloseMode::Empty).await;
    assert_eq!((closed.closed, closed.forced), (true, None), "nothing of the force is left");
}

async fn the_first_partition_keeps_the_id_of_whoever_came_first(rig: &mut Rig) {
    close(rig, CloseMode::Empty).await;
    assert_eq!(
        close(rig, CloseMode::ByForce(id(1))).await.forced,
        Some(id(1)),
        "what was closed empty has none"
    );
    assert_eq!(close(rig, CloseMode::ByForce(id(2))).await.forced, Some(id(1)));
    let second = PartitionNames::new(DEFAULT_NAMESPACE, &rig.at.topic, 1, 2, false);
    for number in [1, 2] {
        let closed = rig.store.close(&second, CloseMode::ByForce(id(number))).await.expect("an answer");
        assert_eq!(closed.forced, Some(id(number)), "the others go with whoever comes last");
    }
    rig.store.end(&second).await.expect("an answer");
}

async fn timers_go_page_by_page_and_the_rest_at_the_end(rig: &mut Rig) {
    rig.quarantine("d").await;
    let deadline = rig.ceil() + 1000;
    for key in ["a", "b", "c"] {
        rig.arm_in(key, 1000).await;
    }
    close(rig, CloseMode::ByForce(id(1))).await;
    let DestroyStep::Closed(page) = destroy(rig, &[], 2).await else { panic!("it is closed") };
    assert_eq!(page, [("a".into(), Some(deadline)), ("b".into(), Some(deadline))]);
    let DestroyStep::Closed(page) = destroy(rig, &["a", "b"], 2).await else { panic!("it is closed") };
    assert_eq!(page, [("c".into(), Some(deadline))]);
    assert_eq!(rig.length("timers").await, 2);
    let DestroyStep::Closed(page) = destroy(rig, &["c"], 2).await else { panic!("it is closed") };
    assert_eq!(page.len(), 1, "what is in quarantine comes last");
    assert_eq!(destroy(rig, &["d"], 2).await, DestroyStep::Closed(Vec::new()));
    assert_eq!(names(rig).await, ["meta", "claimers"], "what has no names to go by goes with the partition");
    destroy(rig, &[], 0).await;
    assert!(names(rig).await.is_empty());
}

async fn whoever_runs_is_told_and_settles_nothing_afterwards(rig: &mut Rig) {
    let (_, held) = rig.run("a").await;
    rig.arm_in("a", 500).await;
    close(rig, CloseMode::ByForce(id(1))).await;
    let mut events = Events::open(rig).await;
    let DestroyStep::Closed(page) = destroy(rig, &[], 10).await else { panic!("it is closed") };
    assert_eq!(page, [("a".into(), None)], "the trigger key of what runs is gone by itself");
    assert_eq!(events.so_far(rig).await, [Event::Fence { partition: 0, held: held.clone() }]);
    destroy(rig, &["a"], 10).await;
    destroy(rig, &[], 0).await;
    // It makes the topic anew, and finds nothing there.
    assert_eq!(rig.end(&held, retry(10)).await, SettleReply::Gone);
    assert!(!rig.renew(&held).await && rig.ack(&[held]).await.gone == [0]);
    assert!(rig.claim().await.is_empty());
    assert_eq!(names(rig).await, ["meta"]);
}

async fn an_arm_after_the_end_is_a_new_beginning(rig: &mut Rig) {
    let (before, _) = rig.arm_in("a", 0).await;
    close(rig, CloseMode::ByForce(id(1))).await;
    destroy(rig, &[], 0).await;
    assert_eq!(rig.cancel("a").await.result, Cancelled::NotArmed);
    let (after, armed) = rig.arm_in("a", 0).await;
    assert_eq!(armed.code, ArmCode::Armed);
    assert_ne!(before.arming, after.arming);
    rig.pass(ms(1)).await;
    assert_eq!(rig.claim().await.keys(), ["a"]);
}

async fn what_is_detached_may_have_enrolled_keys_but_no_timer_and_no_letter(rig: &mut Rig) {
    rig.attach();
    let canary = rig.now();
    rig.read(canary + 1000, canary, 0).await;
    assert!(!close(rig, CloseMode::Empty).await.closed);
    assert_eq!(rig.note(canary, 1).await, RecordedExpiry::Lapse);
    let refused = close(rig, CloseMode::Detached).await;
    assert_eq!((refused.closed, refused.timers), (false, 1));
    let held = rig.claim().await.held().remove(0);
    rig.end(&held, dead()).await;
    let refused = close(rig, CloseMode::Detached).await;
    assert_eq!((refused.closed, refused.letters), (false, 1));
    let id = rig.letters().await.remove(0).id;
    assert!(rig.store.drop_letter(&rig.at, &id).await.expect("it can be dropped"));
    rig.read(canary + 2000, canary, 1).await;
    let closed = close(rig, CloseMode::Detached).await;
    assert_eq!((closed.closed, closed.forced, closed.tracked), (true, None, 1));
    assert!(close(rig, CloseMode::Detached).await.closed, "another goes on with it");
    assert!(!close(rig, CloseMode::Open(None)).await.closed, "and it can be opened again");
    close(rig, CloseMode::Detached).await;
    destroy(rig, &[], 0).await;
    assert!(names(rig).await.is_empty());
}

async fn nothing_is_taken_from_what_is_open(rig: &mut Rig) {
    rig.arm_in("a", 1000).await;
    for most in [0, 10] {
        assert_eq!(destroy(rig, &["a"], most).await, DestroyStep::Open);
    }
    assert!(rig.armed("a").await.is_some());
}

async fn a_partition_that_never_was_is_closed_and_ended(rig: &mut Rig) {
    assert_eq!(destroy(rig, &[], 10).await, DestroyStep::Gone);
    assert_eq!(close(rig, CloseMode::Ask).await, Holdings::default());
    assert!(names(rig).await.is_empty(), "whoever asks writes nothing");
    assert!(close(rig, CloseMode::Empty).await.closed);
    assert_eq!(destroy(rig, &[], 10).await, DestroyStep::Closed(Vec::new()));
    destroy(rig, &[], 0).await;
    assert!(names(rig).await.is_empty());
}

async fn another_number_of_partitions_or_kind_is_refused(rig: &mut Rig) {
    rig.arm_in("a", 1000).await;
    let other = |of, attached| PartitionNames::new(DEFAULT_NAMESPACE, &rig.at.topic, 0, of, attached);
    for (at, kind) in [(other(2, false), ErrorKind::Partitions), (other(1, true), ErrorKind::Conflict)] {
        let refused = rig.store.close(&at, CloseMode::Ask).await.expect_err("it is another topic");
        assert_eq!(refused.kind(), kind, "{refused}");
    }
}
