//! Attached keys whose deadlines were read, and that are checked.

use keylapse_wire::{CheckAction, RecordedExpiry, TrackResult};

use crate::model::rig::{Rig, ms};

on_each_server! {
    reading_an_unchanged_key_again_restores_a_lost_check,
    reading_an_unchanged_key_again_leaves_its_check_to_who_has_taken_it,
    a_key_without_a_deadline_that_was_not_enrolled_leaves_nothing,
    what_is_forgotten_without_a_canary_is_remembered_by_its_time,
    a_history_is_forgotten_although_nothing_else_is_noted,
    who_finds_no_check_is_told_whether_another_has_taken_the_last,
    the_check_of_a_watch_that_is_lost_or_cut_short_is_removed,
    a_verdict_may_put_a_check_off,
    a_repeated_note_without_an_anchor_makes_one_lapse,
}

/// A check comes this long after the deadline: in the deadline's own millisecond a key is still there.
const TOUCH_AFTER: u64 = 2;
/// So many ms of canaries fill a page.
const PAGE: u64 = 300_000;

async fn reading_an_unchanged_key_again_restores_a_lost_check(rig: &mut Rig) {
    rig.attach();
    let (canary, deadline) = (rig.now(), rig.now() + 1000);
    assert_eq!(rig.read(deadline, canary, 0).await, (TrackResult::New, Some(deadline + TOUCH_AFTER)));
    rig.lose_check().await;
    assert_eq!(rig.read(deadline, canary, 0).await, (TrackResult::Known, Some(deadline + TOUCH_AFTER)));
}

async fn reading_an_unchanged_key_again_leaves_its_check_to_who_has_taken_it(rig: &mut Rig) {
    rig.attach();
    let (canary, deadline) = (rig.now(), rig.now() + 1000);
    rig.read(deadline, canary, 0).await;
    rig.pass(ms(1500)).await;
    assert_eq!(rig.take_checks(1, 5000).await.watches.len(), 1);
    assert_eq!(rig.read(deadline, canary, 0).await, (TrackResult::Known, Some(rig.now() + 5000)));
}

async fn a_key_without_a_deadline_that_was_not_enrolled_leaves_nothing(rig: &mut Rig) {
    rig.attach();
    let canary = rig.now();
    assert_eq!(rig.read(0, canary, 1).await, (TrackResult::Forgotten, None));
    assert_eq!(rig.histories().await, 0);
    assert_eq!(rig.read(canary + 1000, canary, 0).await.0, TrackResult::New, "nothing later was done to it");
}

async fn what_is_forgotten_without_a_canary_is_remembered_by_its_time(rig: &mut Rig) {
    rig.attach();
    assert_eq!(rig.read(rig.now() + 1000, 0, 0).await.0, TrackResult::New);
    assert_eq!(rig.read(0, 0, 0).await, (TrackResult::Forgotten, None));
    assert_eq!(rig.histories().await, 1);
    rig.pass(ms(1)).await;
    assert_eq!(rig.read(rig.now() + 1000, 0, 0).await.0, TrackResult::New, "it was read later");
}

async fn a_history_is_forgotten_although_nothing_else_is_noted(rig: &mut Rig) {
    rig.attach();
    rig.note(rig.now(), 1).await;
    for (turn, left) in [(0, 1), (1, 1), (2, 0)] {
        let canary = rig.now();
        assert_eq!(
            rig.read(canary + 1000, canary, 1).await.0,
            if turn == 0 { TrackResult::New } else { TrackResult::Known }
        );
        assert_eq!(rig.histories().await, left, "after {turn} pages");
        rig.pass(ms(PAGE)).await;
    }
}

async fn who_finds_no_check_is_told_whether_another_has_taken_the_last(rig: &mut Rig) {
    rig.attach();
    let rival = async |rig: &Rig, slot| {
        let taken = rig.take_checks(slot, 5000).await;
        (taken.watches.len(), taken.rival)
    };
    assert_eq!(rival(rig, 1).await, (0, None), "nobody has");
    rig.read(rig.now() + 1000, rig.now(), 0).await;
    rig.pass(ms(1500)).await;
    let then = rig.now();
    assert_eq!(rival(rig, 1).await, (1, None));
    assert_eq!(rival(rig, 1).await, (0, None), "it was this one");
    assert_eq!(rival(rig, 2).await, (0, Some(then)));
    rig.pass(ms(5000)).await;
    assert_eq!(rival(rig, 2).await, (1, None), "what comes back is for anybody");
}

async fn the_check_of_a_watch_that_is_lost_or_cut_short_is_removed(rig: &mut Rig) {
    rig.attach();
    // A head that lacks a byte.
    let head = [0; 27];
    for watch in [None, Some(&head[..])] {
        rig.put_watch(None).await;
        assert_eq!(rig.read(rig.now() + 1000, rig.now(), 0).await.0, TrackResult::New);
        rig.put_watch(watch).await;
        rig.pass(ms(1500)).await;
        let taken = rig.take_checks(1, 5000).await;
        assert_eq!((taken.watches, taken.next), (vec![], None));
    }
}

async fn a_verdict_may_put_a_check_off(rig: &mut Rig) {
    rig.attach();
    rig.read(rig.now() + 1000, rig.now(), 0).await;
    rig.pass(ms(1500)).await;
    let watch = rig.take_checks(1, 5000).await.watches.remove(0);
    let later = rig.now() + 700;
    assert_eq!(rig.judge(watch, CheckAction::Again { at: later }).await, (true, Some(later)));
}

async fn a_repeated_note_without_an_anchor_makes_one_lapse(rig: &mut Rig) {
    rig.attach();
    for kept in [0, 1, 2] {
        let arming = rig.ids.arming();
        for _ in 0..2 {
            assert_eq!(rig.note_as(None, arming).await, RecordedExpiry::Lapse);
        }
        let next = rig.look("a").await.expect("it waits").next;
        let count = next.map_or(0, |cycles| u32::from_be_bytes(cycles[1..5].try_into().expect("4 bytes")));
        assert_eq!(count, kept);
    }
}
