//! Dead letters, their bounds, and their way back.

use crate::model::rig::{ArmCode, LETTERS, Rig, dead, letter_name, ms, retry};
use bytes::Bytes;
use keylapse::dead_letters::Replayed;
use keylapse::{Cancelled, Rescheduled};
use keylapse_wire::record::{Record, State, StoredDeadLetter};
use keylapse_wire::time::WireWhen;
use keylapse_wire::{
    DeadLetterLimits, DeadLetterPosition, Index, NewTimer, PageCall, PageFrom, PageOf, QuarantineGroup,
    RepairTarget, ReplayCall, Settle,
};

on_each_server! {
    the_oldest_letters_make_room,
    every_letter_that_makes_room_is_counted_once,
    letters_that_lost_their_leases_make_room_too,
    old_letters_are_trimmed_at_the_next_death,
    full_letters_pause_the_partition_if_asked_to,
    a_pause_of_an_operator_keeps_its_reason,
    letters_are_read_page_by_page,
    letters_of_one_moment_are_read_page_by_page,
    a_page_begins_where_it_is_asked_to_among_letters_of_one_moment,
    a_letter_is_dropped_once,
    dropping_a_letter_does_not_mix_up_the_answers_of_others,
    a_replayed_letter_is_the_same_arming,
    a_letter_that_is_replayed_as_new_is_another_arming_of_the_same_payload,
    a_letter_is_replayed_once,
    each_death_of_an_arming_leaves_a_letter_of_its_own,
    a_replay_clears_the_tombstone_of_its_arming,
    a_replayed_letter_starts_over_whatever_state_is_left,
    a_timer_without_a_payload_is_moved_retried_and_replayed,
    a_key_with_a_timer_is_not_replayed,
    a_letter_is_not_replayed_over_a_timer_of_its_own_arming,
    an_unknown_letter_is_not_replayed,
    an_unreadable_letter_is_not_replayed,
    a_letter_of_a_newer_version_or_cut_short_is_not_replayed,
}

/// Ends each of these keys for good, one after the other in time.
async fn kill(rig: &mut Rig, letters: DeadLetterLimits, keys: &[&str]) {
    for key in keys {
        let (_, held) = rig.run(key).await;
        rig.end_bounded(letters, &held, dead()).await;
    }
}

/// The names of the letters, oldest first.
async fn names(rig: &Rig) -> Vec<Bytes> {
    rig.letters().await.into_iter().map(|letter| letter.id).collect()
}

fn key(id: &[u8]) -> String {
    String::from_utf8_lossy(&id[16..]).into_owned()
}

async fn dead_keys(rig: &Rig) -> Vec<String> {
    rig.letters().await.iter().map(|letter| key(&letter.id)).collect()
}

async fn counts(rig: &Rig) -> (u64, u64) {
    rig.store.letter_counts(&rig.at).await.expect("they can be counted")
}

async fn the_oldest_letters_make_room(rig: &mut Rig) {
    kill(rig, DeadLetterLimits { count: 2, ..LETTERS }, &["a", "b", "c", "d"]).await;
    assert_eq!(dead_keys(rig).await, ["c", "d"]);
    assert_eq!((counts(rig).await, rig.length("dead_letters").await), ((2, 2), 2));
}

async fn every_letter_that_makes_room_is_counted_once(rig: &mut Rig) {
    rig.arm_due(["a", "b", "c", "d"]).await;
    let held = rig.claim().await.held();
    let ends: Vec<Settle> = held.into_iter().map(|held| Settle { held, end: dead() }).collect();
    let letters = DeadLetterLimits { count: 1, ..LETTERS };
    rig.store.settle(&rig.at, letters, false, &ends).await.expect("they can be settled");
    assert_eq!(counts(rig).await, (1, 3));
}

async fn letters_that_lost_their_leases_make_room_too(rig: &mut Rig) {
    rig.arm_due(["a", "b", "c", "d"]).await;
    let group = QuarantineGroup { running: 0, sizes: [4; 3] };
    for _ in 0..5 {
        if rig.claim().await.is_empty() {
            rig.claim_with(|call| (call.index, call.group) = (Index::Quarantine, group)).await;
        }
        rig.lose_leases().await;
    }
    let burial = rig.claim_with(|call| (call.index, call.letters.count) = (Index::Quarantine, 1));
    let burial = burial.await.claimed;
    assert_eq!((burial.dead_lettered, burial.trimmed), (4, 3));
    assert_eq!(counts(rig).await, (1, 3));
}

async fn old_letters_are_trimmed_at_the_next_death(rig: &mut Rig) {
    let letters = DeadLetterLimits { age_ms: 1000, ..LETTERS };
    kill(rig, letters, &["old"]).await;
    rig.pass(ms(900)).await;
    kill(rig, letters, &["young"]).await;
    rig.pass(ms(100)).await;
    assert_eq!(dead_keys(rig).await, ["old", "young"]);
    kill(rig, letters, &["last"]).await;
    assert_eq!(dead_keys(rig).await, ["young", "last"]);
    assert_eq!(counts(rig).await, (2, 1));
}

async fn full_letters_pause_the_partition_if_asked_to(rig: &mut Rig) {
    let letters = DeadLetterLimits { count: 2, pause_when_full: true, ..LETTERS };
    kill(rig, letters, &["a", "b"]).await;
    rig.arm_due(["c"]).await;
    let taken = rig.claim().await;
    assert!(taken.is_empty());
    assert_eq!(taken.claimed.paused.as_deref(), Some("dead letters are full"));
    assert_eq!(counts(rig).await, (2, 0), "nothing was thrown away");
}

async fn a_pause_of_an_operator_keeps_its_reason(rig: &mut Rig) {
    let (_, held) = rig.run("a").await;
    rig.store.pause(&rig.at, Some("maintenance")).await.expect("it pauses");
    let letters = DeadLetterLimits { count: 1, pause_when_full: true, ..LETTERS };
    rig.end_bounded(letters, &held, dead()).await;
    assert_eq!(rig.claim().await.claimed.paused.as_deref(), Some("maintenance"));
}

async fn letters_are_read_page_by_page(rig: &mut Rig) {
    kill(rig, LETTERS, &["a", "b", "c"]).await;
    let page = async |after: Option<&DeadLetterPosition>, count| {
        let (letters, more) = rig.store.letters(&rig.at, after, count).await.expect("they can be read");
        (letters.iter().map(|letter| key(&letter.id)).collect::<Vec<_>>(), more)
    };
    assert_eq!(page(None, 0).await, (vec![], None));
    assert_eq!(page(None, 4).await, (vec!["a".into(), "b".into(), "c".into()], None));
    let (first, after) = page(None, 2).await;
    assert_eq!(first, ["a", "b"]);
    assert_eq!(page(after.as_ref(), 2).await, (vec!["c".into()], None));
    // What was read goes, and the rest is read all the same.
    let id = after.as_ref().expect("there are more").id.clone();
    rig.store.drop_letter(&rig.at, &id).await.expect("it can be dropped");
    assert_eq!(page(after.as_ref(), 2).await, (vec!["c".into()], None));
}

/// Ends all of these in one call, at one time.
async fn kill_at_once(rig: &mut Rig, keys: &[&str]) {
    let mut ends = Vec::new();
    for key in keys {
        let (_, held) = rig.run(key).await;
        ends.push(Settle { held, end: dead() });
    }
    rig.store.settle(&rig.at, LETTERS, false, &ends).await.expect("they end");
}

async fn letters_of_one_moment_are_read_page_by_page(rig: &mut Rig) {
    kill_at_once(rig, &["a", "b", "c", "d", "e"]).await;
    let (mut after, mut pages) = (None, Vec::new());
    loop {
        let (letters, more) = rig.store.letters(&rig.at, after.as_ref(), 2).await.expect("they can be read");
        pages.push(letters.len());
        after = more;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(pages.iter().sum::<usize>(), 5, "{pages:?}");
}

async fn a_page_begins_where_it_is_asked_to_among_letters_of_one_moment(rig: &mut Rig) {
    kill_at_once(rig, &["a", "b", "c"]).await;
    let page = async |from| {
        let call = PageCall { of: PageOf::Dead, from, count: 10, keep: 100, bytes: 1 << 20 };
        let page = rig.store.pages(&[(rig.at.clone(), call)]).await.remove(0).expect("a page");
        page.members.into_iter().map(|member| (member.score, member.name)).collect::<Vec<_>>()
    };
    let all = page(PageFrom::At(0.0)).await;
    let (score, first) = all[0].clone();
    assert!(all.len() == 3 && all.iter().all(|(one, _)| *one == score), "{all:?}");
    assert_eq!(page(PageFrom::At(score)).await, all);
    assert_eq!(page(PageFrom::After(score, first.clone())).await, all[1..]);
    assert_eq!(page(PageFrom::Behind(score)).await, []);
    // Where the member is gone, the page begins after its place.
    assert!(rig.store.drop_letter(&rig.at, &first).await.expect("it can be dropped"));
    assert_eq!(page(PageFrom::After(score, first)).await, all[1..]);
}

async fn a_letter_is_dropped_once(rig: &mut Rig) {
    kill(rig, LETTERS, &["a", "b"]).await;
    let id = rig.letters().await[0].id.clone();
    assert!(rig.store.drop_letter(&rig.at, &id).await.expect("it can be dropped"));
    assert!(!rig.store.drop_letter(&rig.at, &id).await.expect("it can be dropped"));
    assert_eq!(dead_keys(rig).await, ["b"]);
}

async fn dropping_a_letter_does_not_mix_up_the_answers_of_others(rig: &mut Rig) {
    kill(rig, LETTERS, &["a", "b"]).await;
    rig.arm_in("c", 10).await;
    let letters = rig.letters().await;
    let drop = |place: usize| rig.store.drop_letter(&rig.at, &letters[place].id);
    // All at a time on one connection.
    let (first, look, second) = tokio::join!(drop(0), rig.look("c"), drop(1));
    assert!(first.expect("it can be dropped") && second.expect("it can be dropped"));
    assert_eq!(look, rig.look("c").await);
}

/// Replays a letter and claims it: the letter's record, and what is claimed.
async fn replay_and_claim(rig: &mut Rig, call: &ReplayCall) -> (Record, Record) {
    let raw = rig.letters().await.remove(0);
    assert_eq!(rig.replay_as(call).await, Replayed::Replayed);
    let now = rig.ceil();
    assert_eq!(counts(rig).await, (0, 0));
    rig.pass(ms(1)).await;
    let taken = rig.claim().await;
    assert_eq!(taken.state().attempt, 1);
    let record = Record::decode(taken.claimed.timers[0].record.clone()).expect("it can be read");
    let letter = StoredDeadLetter::decode(raw.letter).expect("it can be read");
    assert_eq!(record.deadline, now);
    (Record::decode(letter.record).expect("it can be read"), record)
}

async fn a_replayed_letter_is_the_same_arming(rig: &mut Rig) {
    kill(rig, LETTERS, &["a"]).await;
    let call = rig.replaying(&names(rig).await[0]);
    let (died, lives) = replay_and_claim(rig, &call).await;
    assert_eq!((lives.arming, lives.payload), (died.arming, died.payload));
}

async fn a_letter_that_is_replayed_as_new_is_another_arming_of_the_same_payload(rig: &mut Rig) {
    kill(rig, LETTERS, &["a"]).await;
    let arming = rig.ids.arming();
    let call = ReplayCall { anew: Some(arming), ..rig.replaying(&names(rig).await[0]) };
    let (died, lives) = replay_and_claim(rig, &call).await;
    assert_eq!((lives.arming, lives.payload), (arming, died.payload));
}

async fn a_letter_is_replayed_once(rig: &mut Rig) {
    kill(rig, LETTERS, &["a"]).await;
    let id = names(rig).await.remove(0);
    for expected in [Replayed::Replayed, Replayed::Gone] {
        assert_eq!(rig.replay(&id).await, expected);
        rig.cancel("a").await;
    }
}

async fn each_death_of_an_arming_leaves_a_letter_of_its_own(rig: &mut Rig) {
    let (timer, held) = rig.run("a").await;
    rig.end(&held, dead()).await;
    let first = letter_name(timer.arming, rig.now(), b"a");
    assert_eq!(names(rig).await, [&first[..]]);
    // A late repeat of its arm arms it once more, and it dies once more.
    rig.pass(ms(10)).await;
    assert_eq!(rig.arm_again(&timer).await.code, ArmCode::Armed);
    rig.pass(ms(1)).await;
    let held = rig.claim().await.one();
    rig.end(&held, dead()).await;
    let second = letter_name(timer.arming, rig.now(), b"a");
    assert_eq!(names(rig).await, [&first[..], &second]);
    // What was replayed and died again is another letter than the one that was replayed.
    assert_eq!(rig.replay(&first).await, Replayed::Replayed);
    rig.pass(ms(1)).await;
    let held = rig.claim().await.one();
    rig.end(&held, dead()).await;
    let third = letter_name(timer.arming, rig.now(), b"a");
    assert_eq!(rig.replay(&first).await, Replayed::Gone);
    assert_eq!(names(rig).await, [&second[..], &third]);
}

async fn a_replay_clears_the_tombstone_of_its_arming(rig: &mut Rig) {
    let (timer, held) = rig.run("a").await;
    rig.arm_in("a", 0).await;
    rig.end(&held, dead()).await;
    assert_eq!(rig.arm_again(&timer).await.code, ArmCode::Superseded, "another has followed it");
    rig.cancel("a").await;
    let letter = names(rig).await.remove(0);
    assert_eq!(rig.replay(&letter).await, Replayed::Replayed);
    assert_eq!(rig.arm_again(&timer).await.code, ArmCode::Armed, "it lives");
    rig.pass(ms(1)).await;
    let held = rig.claim().await.one();
    rig.ack(&[held]).await;
    assert_eq!(rig.arm_again(&timer).await.code, ArmCode::Armed, "nothing has followed it this time");
}

async fn a_replayed_letter_starts_over_whatever_state_is_left(rig: &mut Rig) {
    kill(rig, LETTERS, &["a"]).await;
    rig.put_raw(RepairTarget::States, b"a", Some(&State::waiting(7).encode())).await;
    let id = names(rig).await.remove(0);
    assert_eq!(rig.replay(&id).await, Replayed::Replayed);
    rig.pass(ms(1)).await;
    assert_eq!(rig.claim().await.claimed.timers[0].state, None, "this is a first attempt");
}

/// Of its record there is nothing but the head.
async fn a_timer_without_a_payload_is_moved_retried_and_replayed(rig: &mut Rig) {
    let empty = NewTimer { payload: Bytes::new(), ..rig.timer("a", WireWhen::In(0)) };
    let arming = empty.arming;
    rig.arm_all(&[empty]).await;
    let moved = rig.reschedule("a", WireWhen::In(0)).await;
    assert!(matches!(moved, Rescheduled::Rescheduled(_)), "{moved:?}");
    rig.pass(ms(1)).await;
    let held = rig.claim().await.one();
    rig.end(&held, retry(0)).await;
    rig.pass(ms(1)).await;
    let retried = rig.claim().await;
    assert_eq!(retried.state().attempt, 2);
    rig.end(&retried.one(), dead()).await;
    let id = names(rig).await.remove(0);
    let replayed = rig.replay(&id).await;
    assert_eq!((replayed, rig.armed("a").await), (Replayed::Replayed, Some(arming)));
}

async fn a_key_with_a_timer_is_not_replayed(rig: &mut Rig) {
    kill(rig, LETTERS, &["a"]).await;
    let (timer, reply) = rig.arm_in("a", 10).await;
    assert_eq!(reply.code, ArmCode::Armed);
    let id = names(rig).await.remove(0);
    let replayed = rig.replay(&id).await;
    assert_eq!((replayed, rig.armed("a").await), (Replayed::Exists, Some(timer.arming)));
    assert_eq!(counts(rig).await, (1, 0));
}

async fn a_letter_is_not_replayed_over_a_timer_of_its_own_arming(rig: &mut Rig) {
    let (timer, held) = rig.run("a").await;
    rig.end(&held, dead()).await;
    assert_eq!(rig.arm_again(&timer).await.code, ArmCode::Armed);
    let before = rig.look("a").await;
    let id = names(rig).await.remove(0);
    let replayed = rig.replay(&id).await;
    assert_eq!((replayed, rig.look("a").await), (Replayed::Exists, before));
    assert_eq!(counts(rig).await, (1, 0));
}

async fn an_unknown_letter_is_not_replayed(rig: &mut Rig) {
    let replayed = rig.replay(b"1234567812345678a").await;
    assert_eq!(replayed, Replayed::Gone);
}

async fn an_unreadable_letter_is_not_replayed(rig: &mut Rig) {
    rig.arm_in("a", 0).await;
    rig.put_raw(RepairTarget::Records, b"a", Some(b"\x01cut")).await;
    rig.pass(ms(1)).await;
    assert_eq!(rig.claim().await.claimed.dead_lettered, 1);
    let id = rig.letters().await[0].id.clone();
    let replayed = rig.replay(&id).await;
    assert_eq!((replayed, counts(rig).await), (Replayed::Unreadable, (1, 0)));
    assert_eq!(rig.cancel("a").await.result, Cancelled::NotArmed);
}

async fn a_letter_of_a_newer_version_or_cut_short_is_not_replayed(rig: &mut Rig) {
    kill(rig, LETTERS, &["a"]).await;
    let raw = rig.letters().await.remove(0);
    for letter in [[&b"\x02"[..], &raw.letter[1..]].concat(), raw.letter[..13].to_vec()] {
        rig.put_letter(&raw.id, &letter).await;
        let replayed = rig.replay(&raw.id).await;
        assert_eq!((replayed, counts(rig).await), (Replayed::Unreadable, (1, 0)));
        assert_eq!(rig.look("a").await, None);
    }
}
