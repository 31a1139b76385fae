//! A topic gets another number of partitions: each is paused, closed, gives up what belongs elsewhere, and is opened.

use bytes::Bytes;
use keylapse::ErrorKind;
use keylapse_connection::id::RepartitionId;
use keylapse_wire::names::{DEFAULT_NAMESPACE, PartitionNames};
use keylapse_wire::time::WireWhen;
use keylapse_wire::{
    ListTarget, MovedKind, PartitionMeta, PartitionPhase, RepartitionChange, RepartitionStep,
};

use crate::model::rig::{ArmCode, Rig, dead, ms, retry};
use crate::produce::Produce;

on_each_server! {
    what_is_paused_takes_timers_and_gives_none_out,
    a_pause_that_others_made_is_there_again,
    only_whoever_has_paused_last_closes_or_resumes,
    what_was_resumed_is_not_closed,
    what_is_closed_refuses_every_call,
    it_says_for_how_long_it_has_been_closed,
    a_second_call_goes_on_under_the_first_ones_id,
    another_number_is_not_begun_beside_the_first,
    all_of_a_timer_moves_as_it_is,
    letters_and_tombstones_move_under_their_names,
    nothing_is_put_into_or_taken_from_what_is_open_or_of_another_call,
    reading_stops_at_its_bytes_and_says_how_far_it_came,
    who_runs_is_listed_until_the_lease_ends,
    what_is_given_up_stays_empty_and_says_the_new_number,
    what_a_call_has_left_that_is_over_is_opened,
}

fn id(byte: u8) -> RepartitionId {
    RepartitionId::from_bytes(&[byte; 8]).expect("an id has eight bytes")
}

/// A call to two partitions, by whoever has this number.
fn change(byte: u8) -> RepartitionChange {
    RepartitionChange { to: 2, own: id(byte), id: id(byte) }
}

/// The second of two, as callers name it who believe in one.
fn second(rig: &Rig) -> PartitionNames {
    PartitionNames::new(DEFAULT_NAMESPACE, &rig.at.topic, 1, 1, false)
}

async fn step(rig: &Rig, by: u8, how: RepartitionStep<'_>) -> PartitionMeta {
    rig.store.repartition_step(&rig.at, change(by), how).await.expect("it can be asked")
}

/// The same of the second.
async fn beside(rig: &Rig, by: u8, how: RepartitionStep<'_>) -> PartitionMeta {
    rig.store.repartition_step(&second(rig), change(by), how).await.expect("it can be asked")
}

async fn close(rig: &Rig) {
    assert!(step(rig, 1, RepartitionStep::Pause).await.done);
    assert!(step(rig, 1, RepartitionStep::Close).await.done);
    assert!(beside(rig, 1, RepartitionStep::Close).await.done, "what is not there yet is made");
}

/// Nothing has come into the second, which goes.
async fn forget(rig: &Rig) {
    for name in second(rig).all() {
        assert!(!rig.exists(name).await || name.ends_with("meta"), "{name} is left");
    }
    rig.delete(second(rig).all()).await;
}

async fn what_is_paused_takes_timers_and_gives_none_out(rig: &mut Rig) {
    let (_, held) = rig.run("runs").await;
    assert_eq!(step(rig, 1, RepartitionStep::Ask).await.standing, PartitionPhase::Open);
    let paused = step(rig, 1, RepartitionStep::Pause).await;
    assert_eq!((paused.done, paused.standing, paused.of, paused.to), (true, PartitionPhase::Paused, 1, 2));
    assert_eq!(rig.arm_in("a", 0).await.1.code, ArmCode::Armed);
    rig.pass(ms(1)).await;
    let claimed = rig.claim().await.claimed;
    assert!(claimed.timers.is_empty() && claimed.paused.is_some(), "{claimed:?}");
    assert!(rig.renew(&held).await && rig.ack(&[held]).await.gone.is_empty(), "who runs goes on");
    let resumed = step(rig, 1, RepartitionStep::Resume).await;
    assert_eq!((resumed.done, resumed.standing), (true, PartitionPhase::Open));
    assert_eq!(rig.claim().await.keys(), ["a"]);
}

async fn a_pause_that_others_made_is_there_again(rig: &mut Rig) {
    rig.arm_in("a", 0).await;
    rig.pass(ms(1)).await;
    rig.store.pause(&rig.at, Some("why")).await.expect("it can be paused");
    for by in [1, 2] {
        assert_eq!(step(rig, by, RepartitionStep::Pause).await.paused.as_deref(), Some("why"));
    }
    rig.store.pause(&rig.at, Some("other")).await.expect("it can be paused");
    assert!(step(rig, 2, RepartitionStep::Resume).await.done);
    assert_eq!(rig.claim().await.claimed.paused.as_deref(), Some("other"));
    close(rig).await;
    assert!(step(rig, 1, RepartitionStep::Open).await.done);
    assert_eq!(
        rig.store.repartition_step(&rig.at, change(1), RepartitionStep::Ask).await.expect("an answer").of,
        2
    );
    rig.delete(second(rig).all()).await;
}

async fn only_whoever_has_paused_last_closes_or_resumes(rig: &mut Rig) {
    rig.arm_in("a", 1000).await;
    step(rig, 1, RepartitionStep::Pause).await;
    step(rig, 2, RepartitionStep::Pause).await;
    for how in [RepartitionStep::Close, RepartitionStep::Resume] {
        let refused = step(rig, 1, how).await;
        assert_eq!((refused.done, refused.standing), (false, PartitionPhase::Paused), "{how:?}");
    }
    let closed = step(rig, 2, RepartitionStep::Close).await;
    assert_eq!((closed.done, closed.standing, closed.id), (true, PartitionPhase::Closed, Some(id(2))));
}

async fn what_was_resumed_is_not_closed(rig: &mut Rig) {
    rig.arm_in("a", 1000).await;
    step(rig, 1, RepartitionStep::Pause).await;
    rig.store.pause(&rig.at, None).await.expect("it can be resumed");
    let refused = step(rig, 1, RepartitionStep::Close).await;
    assert_eq!((refused.done, refused.standing, refused.to), (false, PartitionPhase::Open, 0));
    assert!(!step(rig, 1, RepartitionStep::Resume).await.done, "there is nothing to resume");
}

async fn what_is_closed_refuses_every_call(rig: &mut Rig) {
    let (_, held) = rig.run("runs").await;
    close(rig).await;
    let timer = rig.timer("new", WireWhen::In(0));
    let cancel = rig.cancelling("runs");
    let (store, at) = (&rig.store, &rig.at);
    let errors = [
        store.arm(at, Default::default(), &[timer]).await.map(drop),
        store.ack(at, false, std::slice::from_ref(&held)).await.map(drop),
        store.renew(at, 1000, &[held]).await.map(drop),
        store.cancel(at, &[cancel]).await.map(drop),
        store.pause(at, None).await.map(drop),
        store.get_timer(at, b"runs").await.map(drop),
        store.drop_letter(at, b"a letter").await.map(drop),
        store.close(at, keylapse_wire::CloseMode::Empty).await.map(drop),
    ];
    for error in errors {
        let error = error.expect_err("it is closed");
        assert_eq!(error.kind(), ErrorKind::Repartitioning, "{error}");
        assert!(error.is_transient() && error.to_string().contains("call Console::repartition"), "{error}");
    }
    forget(rig).await;
}

async fn it_says_for_how_long_it_has_been_closed(rig: &mut Rig) {
    rig.arm_in("a", 1000).await;
    close(rig).await;
    rig.pass(ms(5)).await;
    let closed_ms = step(rig, 1, RepartitionStep::Ask).await.closed_ms;
    assert!((5..60_000).contains(&closed_ms), "{closed_ms} ms");
    forget(rig).await;
}

async fn a_second_call_goes_on_under_the_first_ones_id(rig: &mut Rig) {
    rig.arm_in("a", 1000).await;
    close(rig).await;
    let again = step(rig, 2, RepartitionStep::Close).await;
    assert_eq!((again.done, again.id), (true, Some(id(1))), "a second call goes on under the first one's id");
    let others = beside(rig, 2, RepartitionStep::Close).await;
    assert_eq!((others.done, others.id), (false, Some(id(1))), "what is closed is not closed under another");
    forget(rig).await;
}

async fn another_number_is_not_begun_beside_the_first(rig: &mut Rig) {
    rig.arm_in("a", 1000).await;
    step(rig, 1, RepartitionStep::Pause).await;
    let other = RepartitionChange { to: 3, ..change(2) };
    let refused =
        rig.store.repartition_step(&rig.at, other, RepartitionStep::Pause).await.expect("an answer");
    assert_eq!((refused.done, refused.to), (false, 2));
    step(rig, 1, RepartitionStep::Close).await;
    let refused =
        rig.store.repartition_step(&rig.at, other, RepartitionStep::Close).await.expect("an answer");
    assert_eq!((refused.done, refused.to), (false, 2));
}

fn names(all: &[&str]) -> Vec<Bytes> {
    all.iter().map(|name| Bytes::copy_from_slice(name.as_bytes())).collect()
}

/// Takes these to the second partition.
async fn carry(rig: &Rig, cargo: MovedKind, all: &[Bytes]) {
    let (read, entries) =
        rig.store.read_entries(&rig.at, cargo, all, 1 << 20).await.expect("they can be read");
    assert_eq!(read, all.len());
    assert!(rig.store.put_entries(&second(rig), id(1), &entries).await.expect("an answer"));
    assert!(
        rig.store.put_entries(&second(rig), id(1), &entries).await.expect("an answer"),
        "once more does no harm"
    );
    if cargo != MovedKind::Tombstones {
        assert!(rig.store.delete_moved(&rig.at, id(1), cargo, all).await.expect("an answer"));
    }
}

/// Opens both for two partitions, and looks at the second as those do who know of it.
async fn open(rig: &mut Rig) -> PartitionNames {
    beside(rig, 1, RepartitionStep::Open).await;
    step(rig, 1, RepartitionStep::Open).await;
    let at = |index| PartitionNames::new(DEFAULT_NAMESPACE, &rig.at.topic, index, 2, false);
    let (first, other) = (at(0), at(1));
    rig.at = first;
    other
}

async fn all_of_a_timer_moves_as_it_is(rig: &mut Rig) {
    rig.quarantine("suspect").await;
    rig.arm_in("stays", 1000).await;
    rig.arm_in("waits", 1000).await;
    let (_, held) = rig.run("failed").await;
    rig.end(&held, retry(500)).await;
    let (_, held) = rig.run("runs").await;
    rig.arm_in("runs", 700).await;
    let all = ["waits", "failed", "suspect", "runs"];
    let mut before = Vec::new();
    for key in all {
        before.push(rig.look(key).await.expect("it is there"));
    }
    close(rig).await;
    carry(rig, MovedKind::Timers, &names(&all)).await;
    let other = open(rig).await;
    for (key, before) in all.iter().zip(before) {
        assert!(rig.look(key).await.is_none(), "{key}");
        let after =
            rig.store.get_timer(&other, key.as_bytes()).await.expect("an answer").expect("it is there");
        assert_eq!(format!("{after:?}"), format!("{before:?}"), "{key}");
    }
    assert!(rig.look("stays").await.is_some());
    assert!(
        rig.store.renew(&other, 1000, &[held]).await.expect("an answer").is_empty(),
        "the token moves, too"
    );
    rig.delete(other.all()).await;
}

async fn letters_and_tombstones_move_under_their_names(rig: &mut Rig) {
    let (_, held) = rig.run("dies").await;
    rig.end(&held, dead()).await;
    rig.arm_in("a", 1000).await;
    rig.cancel("a").await;
    let letter = rig.letters().await.remove(0);
    close(rig).await;
    for (what, cargo) in
        [(ListTarget::Dead, MovedKind::Letters), (ListTarget::Tombstones, MovedKind::Tombstones)]
    {
        let (next, all) = rig.store.names_in(&rig.at, what, 0, 100).await.expect("they are listed");
        assert!(next == 0 && !all.is_empty());
        carry(rig, cargo, &all).await;
    }
    let (_, tombstones) =
        rig.store.names_in(&second(rig), ListTarget::Tombstones, 0, 100).await.expect("a list");
    assert_eq!(tombstones.len(), 2, "of an arming and of a cancel");
    let other = open(rig).await;
    let (letters, _) = rig.store.letters(&other, None, 10).await.expect("they can be read");
    assert_eq!(letters, [letter]);
    assert!(rig.letters().await.is_empty());
    rig.delete(other.all()).await;
}

async fn nothing_is_put_into_or_taken_from_what_is_open_or_of_another_call(rig: &mut Rig) {
    rig.arm_in("a", 1000).await;
    let a = names(&["a"]);
    let (_, entries) = rig.store.read_entries(&rig.at, MovedKind::Timers, &a, 1000).await.expect("an answer");
    for closed in [false, true] {
        if closed {
            close(rig).await;
        }
        assert!(!rig.store.delete_moved(&rig.at, id(2), MovedKind::Timers, &a).await.expect("an answer"));
        assert!(!rig.store.put_entries(&rig.at, id(2), &entries).await.expect("an answer"));
        let share = RepartitionStep::Share { paused: Some("why"), from: 1, trimmed: 1 };
        assert!(!step(rig, 2, share).await.done && !step(rig, 2, RepartitionStep::Open).await.done);
    }
    assert_eq!(rig.length("timers").await, 1);
    forget(rig).await;
}

async fn reading_stops_at_its_bytes_and_says_how_far_it_came(rig: &mut Rig) {
    for key in ["a", "b", "c"] {
        rig.arm_in(key, 1000).await;
    }
    let all = names(&["a", "gone", "b", "c"]);
    let read = async |bytes| {
        let (read, entries) =
            rig.store.read_entries(&rig.at, MovedKind::Timers, &all, bytes).await.expect("an answer");
        (read, entries.len())
    };
    assert_eq!(read(1).await, (1, 2));
    assert_eq!(read(50).await, (3, 4));
    assert_eq!(read(1000).await, (4, 6));
}

async fn who_runs_is_listed_until_the_lease_ends(rig: &mut Rig) {
    let running = async |rig: &Rig| {
        rig.store.names_in(&rig.at, ListTarget::Running, 0, 100).await.expect("they are listed").1
    };
    let (_, held) = rig.run("failed").await;
    rig.end(&held, retry(10_000_000)).await;
    rig.run("a").await;
    assert_eq!(running(rig).await, ["a"]);
    rig.pass(ms(crate::model::rig::LEASE + 1)).await;
    assert!(running(rig).await.is_empty(), "whoever held it is gone");
}

async fn what_is_given_up_stays_empty_and_says_the_new_number(rig: &mut Rig) {
    rig.arm_in("a", 1000).await;
    let (_, held) = rig.run("b").await;
    rig.ack(&[held]).await;
    close(rig).await;
    let other = open(rig).await;
    assert!(!rig.exists(rig.at.key("claimers")).await, "who claimed before leads nobody");
    let back = RepartitionChange { to: 1, ..change(3) };
    let reshape =
        async |at: &PartitionNames, how| rig.store.repartition_step(at, back, how).await.expect("an answer");
    for at in [&rig.at, &other] {
        assert!(reshape(at, RepartitionStep::Pause).await.done);
    }
    for at in [&rig.at, &other] {
        assert!(reshape(at, RepartitionStep::Close).await.done);
    }
    let share = RepartitionStep::Share { paused: None, from: 1, trimmed: 7 };
    for _ in 0..2 {
        assert!(reshape(&rig.at, share).await.done, "once more does no harm");
    }
    for at in [&other, &rig.at] {
        assert!(reshape(at, RepartitionStep::Open).await.done);
    }
    for name in other.all() {
        assert_eq!(rig.exists(name).await, name.ends_with("meta"), "{name}");
    }
    let late = rig.store.get_timer(&other, b"a").await.expect_err("it is not the number any more");
    assert_eq!(late.kind(), ErrorKind::Partitions, "{late}");
    let first = reshape(&rig.at, RepartitionStep::Ask).await;
    assert_eq!((first.of, first.most, first.trimmed), (1, 2, 7));
    let found = reshape(&second(rig), RepartitionStep::Ask).await;
    assert_eq!((found.of, found.most, found.trimmed), (1, 2, 0));
    rig.delete(other.all()).await;
}

async fn what_a_call_has_left_that_is_over_is_opened(rig: &mut Rig) {
    rig.arm_in("a", 1000).await;
    close(rig).await;
    let other = RepartitionChange { id: id(2), ..change(2) };
    for (by, standing) in [(other, PartitionPhase::Closed), (change(1), PartitionPhase::Open)] {
        let found =
            rig.store.repartition_step(&second(rig), by, RepartitionStep::Tidy).await.expect("an answer");
        assert_eq!(found.standing, standing, "{by:?}");
    }
    step(rig, 1, RepartitionStep::Tidy).await;
    assert!(rig.armed("a").await.is_some(), "as before");
    forget(rig).await;
}
