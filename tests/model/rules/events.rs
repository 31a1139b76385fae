//! What listeners are told: new heads and fences.

use keylapse::inside::receiving::event::Event;
use keylapse_wire::time::WireWhen;
use keylapse_wire::{AttemptEnd, Index, LeaseRef};

use crate::model::rig::{Events, Ids, Rig, ms, retry};

on_each_server! {
    a_lower_head_wakes,
    of_several_the_earliest_wakes,
    a_head_that_stays_does_not_wake,
    a_cancel_fences_the_claim_that_holds,
    a_cancel_of_a_waiting_timer_says_nothing,
    a_retry_wakes_only_if_it_is_next,
    a_release_wakes_those_who_stay,
    what_follows_an_ack_wakes,
    what_follows_an_ack_wakes_only_if_it_is_next,
    what_follows_a_burial_wakes,
    what_moves_ahead_in_quarantine_wakes_whatever_is_next_among_the_others,
    a_resume_wakes,
    a_replay_wakes,
    what_is_left_is_announced_where_it_is_due_and_not_paused,
    the_end_of_who_leads_or_stands_by_is_announced,
}

fn wake(at: u64) -> Event {
    Event::Wake { partition: 0, index: Index::Due, at }
}

fn wake_of_quarantine(at: u64) -> Event {
    Event::Wake { partition: 0, index: Index::Quarantine, at }
}

async fn a_lower_head_wakes(rig: &mut Rig) {
    let mut events = Events::open(rig).await;
    let (_, far) = rig.arm_in("far", 100).await;
    let (_, near) = rig.arm_in("near", 50).await;
    let _ = rig.reschedule("far", WireWhen::In(20)).await;
    let all = [wake(far.deadline), wake(near.deadline), wake(rig.ceil() + 20)];
    assert_eq!(events.so_far(rig).await, all);
}

async fn of_several_the_earliest_wakes(rig: &mut Rig) {
    let mut events = Events::open(rig).await;
    let timers =
        [("middle", 60), ("near", 50), ("far", 100)].map(|(key, ms)| rig.timer(key, WireWhen::In(ms)));
    let armed = rig.arm_all(&timers).await;
    assert_eq!(events.so_far(rig).await, [wake(armed[1].deadline)]);
}

async fn a_head_that_stays_does_not_wake(rig: &mut Rig) {
    let (_, near) = rig.arm_in("near", 50).await;
    let mut events = Events::open(rig).await;
    rig.arm_in("far", 100).await;
    let at = WireWhen::At(near.deadline);
    let same = rig.timer("same", at);
    rig.arm_all(&[same]).await;
    let _ = rig.reschedule("far", at).await;
    assert_eq!(events.so_far(rig).await, []);
}

async fn a_cancel_fences_the_claim_that_holds(rig: &mut Rig) {
    let (_, held) = rig.run("a").await;
    let mut events = Events::open(rig).await;
    rig.cancel("a").await;
    let LeaseRef { key, token } = held;
    assert_eq!(events.so_far(rig).await, [Event::Fence { partition: 0, held: LeaseRef { key, token } }]);
}

async fn a_cancel_of_a_waiting_timer_says_nothing(rig: &mut Rig) {
    rig.arm_in("a", 10).await;
    let mut events = Events::open(rig).await;
    rig.cancel("a").await;
    assert_eq!(events.so_far(rig).await, []);
}

async fn a_retry_wakes_only_if_it_is_next(rig: &mut Rig) {
    let (_, a) = rig.run("a").await;
    let (_, b) = rig.run("b").await;
    let mut events = Events::open(rig).await;
    rig.end(&a, retry(10)).await;
    rig.end(&b, retry(20)).await;
    assert_eq!(events.so_far(rig).await, [wake(rig.ceil() + 10)]);
}

async fn a_release_wakes_those_who_stay(rig: &mut Rig) {
    let (_, held) = rig.run("a").await;
    let mut events = Events::open(rig).await;
    rig.end(&held, AttemptEnd::Release).await;
    assert_eq!(events.so_far(rig).await, [wake(rig.now())]);
}

async fn what_follows_an_ack_wakes(rig: &mut Rig) {
    let (_, held) = rig.run("a").await;
    let (_, kept) = rig.arm_in("a", 10).await;
    let mut events = Events::open(rig).await;
    rig.ack(&[held]).await;
    assert_eq!(events.so_far(rig).await, [wake(kept.deadline)]);
}

async fn what_follows_an_ack_wakes_only_if_it_is_next(rig: &mut Rig) {
    let (_, held) = rig.run("a").await;
    rig.arm_in("a", 10).await;
    rig.arm_in("next", 5).await;
    let mut events = Events::open(rig).await;
    assert_eq!(rig.ack(&[held]).await.followed.len(), 1);
    assert_eq!(events.so_far(rig).await, []);
}

async fn what_follows_a_burial_wakes(rig: &mut Rig) {
    rig.lose("a", 4).await;
    rig.claim_quarantined().await;
    rig.arm_in("a", 10).await;
    rig.lose_leases().await;
    let mut events = Events::open(rig).await;
    assert_eq!(rig.claim_quarantined().await.claimed.dead_lettered, 1);
    assert_eq!(events.so_far(rig).await, [wake_of_quarantine(rig.now())]);
}

/// Whoever has no places left does not look at `due`, and would not see it there.
async fn what_moves_ahead_in_quarantine_wakes_whatever_is_next_among_the_others(rig: &mut Rig) {
    rig.quarantine("a").await;
    let _ = rig.reschedule("a", WireWhen::In(3_600_000)).await;
    rig.arm_in("next", 5).await;
    let mut events = Events::open(rig).await;
    for ms in [1000, 2000, 500] {
        let _ = rig.reschedule("a", WireWhen::In(ms)).await;
    }
    let ahead = [1000, 500].map(|ms| wake_of_quarantine(rig.ceil() + ms));
    assert_eq!(events.so_far(rig).await, ahead, "moved back, it wakes nobody");
}

async fn a_resume_wakes(rig: &mut Rig) {
    let mut events = Events::open(rig).await;
    rig.store.pause(&rig.at, Some("maintenance")).await.expect("it pauses");
    rig.pass(ms(1)).await;
    rig.store.pause(&rig.at, None).await.expect("it resumes");
    assert_eq!(events.so_far(rig).await, [wake(0)]);
}

async fn a_replay_wakes(rig: &mut Rig) {
    let (_, held) = rig.run("a").await;
    rig.end(&held, crate::model::rig::dead()).await;
    let id = rig.letters().await[0].id.clone();
    let mut events = Events::open(rig).await;
    let _ = rig.replay(&id).await;
    assert_eq!(events.so_far(rig).await, [wake(rig.ceil())]);
}

async fn what_is_left_is_announced_where_it_is_due_and_not_paused(rig: &mut Rig) {
    let mut events = Events::open(rig).await;
    let (_, next) = rig.arm_in("next", 50).await;
    let mut left = async |rig: &mut Rig| {
        rig.store.wake_followers(&rig.at).await.expect("an answer");
        events.so_far(rig).await
    };
    assert_eq!(left(rig).await, [wake(next.deadline)], "of the arming: it is not due");
    rig.pass(ms(51)).await;
    let said = Event::Unclaimed { partition: 0, at: next.deadline };
    assert_eq!(left(rig).await, [said]);
    rig.store.pause(&rig.at, Some("maintenance")).await.expect("it pauses");
    assert_eq!(left(rig).await, [], "nobody may claim it");
}

async fn the_end_of_who_leads_or_stands_by_is_announced(rig: &mut Rig) {
    let look = async |rig: &mut Rig, slot: u64, lookahead: i64| {
        let claim =
            rig.claim_with(|call| (call.slot, call.lookahead_ms) = (Ids::slot(slot), lookahead)).await;
        claim.claimed.standby
    };
    rig.arm_in("a", 0).await;
    rig.pass(ms(1)).await;
    look(rig, 1, 0).await;
    assert!(!look(rig, 2, -13).await, "it is");
    assert!(look(rig, 3, -13).await);
    let mut events = Events::open(rig).await;
    let mut close = async |rig: &mut Rig, slot: u64| {
        rig.store.release_claimer(&rig.at, Ids::slot(slot)).await.expect("it closes");
        events.so_far(rig).await
    };
    assert_eq!(close(rig, 3).await, []);
    let now = Event::Unclaimed { partition: 0, at: 0 };
    assert_eq!(close(rig, 2).await, std::slice::from_ref(&now));
    assert!(!look(rig, 3, -13).await, "the standby is gone");
    assert_eq!(close(rig, 1).await, [now]);
    assert_eq!(close(rig, 1).await, [], "once");
}
