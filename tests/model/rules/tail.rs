//! A partition tells what it starts and ends while somebody looks on, and is silent otherwise.

use std::time::Duration;

use keylapse::dead_letters::DeadReason;
use keylapse::inside::receiving::{TailConnection, TailMessage};
use keylapse_wire::time::WireWhen;
use keylapse_wire::{AttemptEnd, Ending, RepairTarget, TailBatch, TimerEvent};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::model::rig::{Events, Rig, dead, ms, retry, snooze};

on_each_server! {
    nobody_looks_and_nothing_is_told,
    one_who_looks_hears_starts_and_ends,
    what_a_call_tells_is_one_message,
    what_finds_no_room_is_counted,
    it_ends_by_itself,
    whoever_looks_for_longer_is_not_cut_short,
    nobody_looks_further_ahead_than_a_minute,
    what_has_passed_is_cleared_away,
    a_partition_that_is_not_there_is_not_made,
    listeners_hear_nothing_of_it,
}

struct Ear {
    _line: TailConnection,
    heard: UnboundedReceiver<TailMessage>,
    marks: u64,
}

impl Ear {
    async fn open(rig: &Rig) -> Self {
        let server = rig.store.topology().only().expect("one server");
        let (sender, heard) = unbounded_channel();
        let hear = move |one| drop(sender.send(one));
        let line =
            TailConnection::open(&server.last_address(), std::slice::from_ref(&rig.at), &[0], hear).await;
        Self { _line: line.expect("somebody can look on"), heard, marks: 0 }
    }

    /// The messages so far: a mark that is published now is heard after all that was published before.
    async fn so_far(&mut self, rig: &Rig) -> Vec<TailBatch> {
        self.marks += 1;
        let mark = [&b"t"[..], &self.marks.to_be_bytes(), &u32::MAX.to_be_bytes()].concat();
        rig.publish(&mark).await;
        let mut all = Vec::new();
        loop {
            let next = tokio::time::timeout(Duration::from_secs(10), self.heard.recv()).await;
            match next.expect("it is heard").expect("the line holds") {
                TailMessage::Message(0, message) if message == mark[..] => return all,
                TailMessage::Message(0, message) => {
                    all.push(TailBatch::decode(message).expect("it can be read"));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Of a single message.
    async fn only(&mut self, rig: &Rig) -> TailBatch {
        let mut all = self.so_far(rig).await;
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    async fn of_one(&mut self, rig: &Rig) -> TimerEvent {
        let mut told = self.only(rig).await;
        assert_eq!((told.at, told.left_out, told.entries.len()), (rig.now(), 0, 1), "{told:?}");
        told.entries.remove(0)
    }
}

async fn look_on(rig: &Rig, for_ms: u64) -> u64 {
    rig.store.renew_watch(&rig.at, for_ms).await.expect("it is answered")
}

async fn nobody_looks_and_nothing_is_told(rig: &mut Rig) {
    rig.arm_in("z", 100_000).await;
    let mut ear = Ear::open(rig).await;
    let (_, held) = rig.run("a").await;
    rig.ack(&[held]).await;
    let (_, held) = rig.run("b").await;
    rig.end(&held, dead()).await;
    rig.arm_in("c", 1000).await;
    rig.cancel("c").await;
    assert_eq!(ear.so_far(rig).await, []);
}

async fn one_who_looks_hears_starts_and_ends(rig: &mut Rig) {
    rig.arm_in("z", 100_000).await;
    let mut ear = Ear::open(rig).await;
    look_on(rig, 60_000).await;
    let (timer, held) = rig.run("a").await;
    let deadline = rig.now();
    let key = timer.key.clone();
    let told = |what, attempt, at| TimerEvent {
        what,
        reason: None,
        attempt,
        arming: Some(timer.arming),
        at,
        key: key.clone(),
    };
    assert_eq!(ear.of_one(rig).await, told(Ending::Started, 1, deadline));
    rig.end(&held, retry(10)).await;
    assert_eq!(ear.of_one(rig).await, told(Ending::Retry, 2, rig.ceil() + 10));
    let due = rig.ceil() + 10;
    rig.pass(ms(15)).await;
    let held = rig.claim().await.one();
    assert_eq!(ear.of_one(rig).await, told(Ending::Started, 2, due), "so it says how late it is");
    rig.end(&held, AttemptEnd::Release).await;
    assert_eq!(ear.of_one(rig).await, told(Ending::Released, 2, due));
    let held = rig.claim().await.one();
    rig.end(&held, snooze(1)).await;
    let [_, snoozed] = &ear.so_far(rig).await[..] else { panic!("a start and an end") };
    assert_eq!(snoozed.entries, [told(Ending::Snoozed, 1, rig.ceil() + 1)]);
    rig.pass(ms(2)).await;
    let held = rig.claim().await.one();
    rig.ack(&[held]).await;
    let [_, done] = &ear.so_far(rig).await[..] else { panic!("a start and an end") };
    assert_eq!(done.entries, [TimerEvent { arming: None, ..told(Ending::Done, 1, 0) }]);

    let (_, held) = rig.run("b").await;
    rig.end(&held, dead()).await;
    let [_, died] = &ear.so_far(rig).await[..] else { panic!("a start and an end") };
    let died = &died.entries[0];
    assert_eq!((died.what, died.reason), (Ending::Dead, Some(DeadReason::Permanent)));
    rig.arm_in("c", 1000).await;
    rig.cancel("c").await;
    assert_eq!(ear.of_one(rig).await.what, Ending::Cancelled);
}

async fn what_a_call_tells_is_one_message(rig: &mut Rig) {
    rig.arm_due(["a", "b", "c"]).await;
    let mut ear = Ear::open(rig).await;
    look_on(rig, 1000).await;
    let held = rig.claim().await.held();
    let keys: Vec<_> = ear.only(rig).await.entries.into_iter().map(|one| one.key).collect();
    assert_eq!(keys, ["a", "b", "c"]);
    rig.ack(&held).await;
    assert_eq!(ear.only(rig).await.entries.len(), 3);
    rig.claim().await;
    assert_eq!(ear.so_far(rig).await, [], "nothing was found");
}

async fn what_finds_no_room_is_counted(rig: &mut Rig) {
    let names: Vec<_> = (0..30).map(|n| format!("{n:04000}")).collect();
    let timers: Vec<_> = names.iter().map(|key| rig.timer(key, WireWhen::In(0))).collect();
    rig.arm_all(&timers).await;
    let mut ear = Ear::open(rig).await;
    look_on(rig, 1000).await;
    rig.pass(ms(1)).await;
    assert_eq!(rig.claim().await.claimed.timers.len(), 30);
    let told = ear.only(rig).await;
    assert_eq!((told.entries.len(), told.left_out), (16, 14));
}

async fn it_ends_by_itself(rig: &mut Rig) {
    rig.arm_due(["a"]).await;
    let mut ear = Ear::open(rig).await;
    assert_eq!(look_on(rig, 100).await, rig.now() + 100);
    let held = rig.claim().await.one();
    assert_eq!(ear.so_far(rig).await.len(), 1);
    rig.pass(ms(100)).await;
    rig.ack(&[held]).await;
    assert_eq!(ear.so_far(rig).await, []);
}

async fn whoever_looks_for_longer_is_not_cut_short(rig: &mut Rig) {
    rig.arm_in("a", 100_000).await;
    let long = look_on(rig, 50_000).await;
    assert_eq!(look_on(rig, 10_000).await, long);
    rig.pass(ms(1000)).await;
    assert_eq!(look_on(rig, 50_000).await, long + 1000);
}

/// Else one who looked on before the clock was set back would have all told for as long.
async fn nobody_looks_further_ahead_than_a_minute(rig: &mut Rig) {
    rig.arm_in("a", 100_000).await;
    assert_eq!(look_on(rig, u64::MAX).await, rig.now() + 60_000);
    rig.put_meta("watched_until", &(rig.now() + 3_600_000).to_string()).await;
    assert_eq!(look_on(rig, 1000).await, rig.now() + 1000);
}

async fn what_has_passed_is_cleared_away(rig: &mut Rig) {
    rig.arm_in("a", 100_000).await;
    look_on(rig, 1000).await;
    let fields = rig.length("meta").await;
    rig.repair(RepairTarget::Tombstones).await.expect("it is repaired");
    assert_eq!(rig.length("meta").await, fields);
    rig.pass(ms(1000)).await;
    rig.repair(RepairTarget::Tombstones).await.expect("it is repaired");
    assert_eq!(rig.length("meta").await, fields - 1);
}

async fn a_partition_that_is_not_there_is_not_made(rig: &mut Rig) {
    let refused = rig.store.renew_watch(&rig.at, 1000).await.expect_err("there is none");
    assert!(refused.to_string().contains("does not exist"), "{refused}");
    assert!(!rig.exists(rig.at.key("meta")).await);
}

async fn listeners_hear_nothing_of_it(rig: &mut Rig) {
    rig.arm_due(["a"]).await;
    let (mut ear, mut events) = (Ear::open(rig).await, Events::open(rig).await);
    look_on(rig, 60_000).await;
    events.so_far(rig).await;
    let held = rig.claim().await.one();
    rig.ack(&[held]).await;
    assert_eq!(events.so_far(rig).await, []);
    assert_eq!(ear.so_far(rig).await.len(), 2);
}
