//! The journal keeps what has ended, where it is asked for, and nothing of it costs a timer.

use keylapse::dead_letters::DeadReason;
use keylapse_wire::time::WireWhen;
use keylapse_wire::{Ending, JournalBounds, JournalPosition, RepairTarget, TimerEvent};

use crate::model::rig::{ArmCode, LEASE, Rig, dead, ms, retry, snooze};

on_each_server! {
    without_being_asked_nothing_is_kept,
    each_end_of_a_timer_is_kept_once,
    what_goes_on_is_no_end,
    a_repeat_of_an_end_is_no_other_end,
    a_timer_that_takes_its_listeners_down_is_kept_as_dead,
    what_is_withdrawn_behind_an_attempt_is_kept_too,
    the_oldest_make_room,
    what_is_too_old_goes_with_the_next_end_or_the_slow_repair,
    pages_are_read_newest_first_and_end,
    what_became_of_one_key_is_found,
    whoever_asks_for_none_ends_it,
    a_value_of_another_type_costs_no_timer_anything,
    long_records_are_not_all_read,
}

const HOUR: u64 = 3_600_000;

/// Whether it is news.
async fn keep(rig: &Rig, count: u64, age_ms: u64) -> bool {
    rig.store.keep_journal(&rig.at, JournalBounds { count, age_ms }).await.expect("it is asked for")
}

async fn bounds(rig: &Rig) -> Option<JournalBounds> {
    rig.store.journal_bounds(&rig.at).await.expect("they can be read")
}

/// All that is kept, newest first.
async fn kept(rig: &Rig) -> Vec<TimerEvent> {
    positions(rig).await.iter().map(|one| one.decode().expect("it is an end")).collect()
}

async fn positions(rig: &Rig) -> Vec<JournalPosition> {
    rig.store.journal(&rig.at, None, 10_000).await.expect("it can be read").0
}

async fn endings(rig: &Rig) -> Vec<(String, Ending)> {
    let name = |ended: TimerEvent| (String::from_utf8_lossy(&ended.key).into_owned(), ended.what);
    let mut all: Vec<_> = kept(rig).await.into_iter().map(name).collect();
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}

async fn without_being_asked_nothing_is_kept(rig: &mut Rig) {
    let (_, held) = rig.run("a").await;
    rig.ack(&[held]).await;
    rig.arm_in("b", 1000).await;
    rig.cancel("b").await;
    assert!(!rig.exists(rig.at.key("journal")).await);
    assert_eq!(bounds(rig).await, None);
}

async fn each_end_of_a_timer_is_kept_once(rig: &mut Rig) {
    rig.arm_in("first", 1000).await; // so that there is a partition
    keep(rig, 100, HOUR).await;
    assert_eq!(bounds(rig).await, Some(JournalBounds { count: 100, age_ms: HOUR }));
    let (done, held) = rig.run("done").await;
    let deadline = rig.now();
    rig.end(&held, retry(0)).await;
    rig.pass(ms(1)).await;
    let held = rig.claim().await.one();
    rig.pass(ms(5)).await;
    let ended = rig.now();
    rig.ack(&[held]).await;
    let [entry] = &kept(rig).await[..] else { panic!("one end") };
    assert_eq!((entry.arming, entry.what, entry.attempt), (Some(done.arming), Ending::Done, 2));
    assert_eq!((entry.at, positions(rig).await[0].ended, &entry.key[..]), (deadline, ended, &b"done"[..]));

    let (_, held) = rig.run("dead").await;
    rig.end(&held, dead()).await;
    let (_, held) = rig.run("again").await;
    let arming = rig.ids.arming();
    rig.end(&held, keylapse_wire::AttemptEnd::Again { delay: 1000, arming }).await;
    rig.arm_in("cancelled", 1000).await;
    rig.cancel("cancelled").await;
    rig.arm_in("replaced", 1000).await;
    assert_eq!(rig.arm_in("replaced", 2000).await.1.code, ArmCode::Replaced);
    let (_, held) = rig.run("way").await;
    rig.arm_in("way", 1000).await;
    rig.end(&held, retry(0)).await;
    let expected = [
        ("again", Ending::Again),
        ("cancelled", Ending::Cancelled),
        ("dead", Ending::Dead),
        ("done", Ending::Done),
        ("replaced", Ending::Replaced),
        ("way", Ending::ReplacedByQueued),
    ];
    assert_eq!(endings(rig).await, expected.map(|(key, ending)| (key.to_owned(), ending)));
    let reasons: Vec<_> = kept(rig).await.into_iter().filter_map(|one| one.reason).collect();
    assert_eq!(reasons, [DeadReason::Permanent]);
}

async fn what_goes_on_is_no_end(rig: &mut Rig) {
    let (_, held) = rig.run("a").await;
    keep(rig, 100, HOUR).await;
    rig.end(&held, snooze(0)).await;
    rig.pass(ms(1)).await;
    let held = rig.claim().await.one();
    rig.end(&held, keylapse_wire::AttemptEnd::Release).await;
    let _ = rig.reschedule("a", WireWhen::In(1000)).await;
    assert_eq!(kept(rig).await, []);
}

async fn a_repeat_of_an_end_is_no_other_end(rig: &mut Rig) {
    let (_, held) = rig.run("a").await;
    keep(rig, 100, HOUR).await;
    rig.ack(std::slice::from_ref(&held)).await;
    rig.pass(ms(3)).await;
    assert_eq!(rig.ack(&[held]).await.gone, [0]);
    rig.arm_in("b", 1000).await;
    let cancel = rig.cancelling("b");
    rig.cancel_as(&cancel).await;
    rig.pass(ms(3)).await;
    rig.cancel_as(&cancel).await;
    let (_, held) = rig.run("c").await;
    rig.end(&held, dead()).await;
    rig.end(&held, dead()).await;
    let (first, _) = rig.arm_in("d", 1000).await;
    let (second, _) = rig.arm_in("d", 2000).await;
    assert_eq!(rig.arm_again(&second).await.code, ArmCode::Replaced);
    assert_eq!(rig.arm_again(&first).await.code, ArmCode::Superseded);
    assert_eq!(kept(rig).await.len(), 4);
}

async fn a_timer_that_takes_its_listeners_down_is_kept_as_dead(rig: &mut Rig) {
    rig.arm_in("z", HOUR).await;
    keep(rig, 100, HOUR).await;
    rig.lose("a", 4).await;
    rig.claim_next().await;
    rig.lose_leases().await;
    rig.claim_quarantined().await;
    assert_eq!(endings(rig).await, [("a".to_owned(), Ending::Dead)]);
    assert_eq!(kept(rig).await[0].reason, Some(DeadReason::LostLeases));
    assert!(positions(rig).await[0].ended >= LEASE);
}

async fn what_is_withdrawn_behind_an_attempt_is_kept_too(rig: &mut Rig) {
    let (first, _) = rig.run("a").await;
    keep(rig, 100, HOUR).await;
    let (second, _) = rig.arm_in("a", 1000).await;
    let (third, _) = rig.arm_in("a", 2000).await;
    let replaced = &kept(rig).await[0];
    assert_eq!((replaced.arming, replaced.what), (Some(second.arming), Ending::Replaced));
    rig.cancel("a").await;
    let cancelled = |timer: &keylapse_wire::NewTimer| (Some(timer.arming), Ending::Cancelled);
    let mut ends: Vec<_> = kept(rig).await.iter().map(|one| (one.arming, one.what)).collect();
    ends.retain(|(_, ending)| *ending == Ending::Cancelled);
    ends.sort_by_key(|(arming, _)| *arming);
    let mut expected = [cancelled(&first), cancelled(&third)];
    expected.sort_by_key(|(arming, _)| *arming);
    assert_eq!(ends, expected);
}

async fn the_oldest_make_room(rig: &mut Rig) {
    rig.arm_in("z", HOUR).await;
    keep(rig, 3, HOUR).await;
    for key in ["a", "b", "c", "d", "e"] {
        let (_, held) = rig.run(key).await;
        rig.ack(&[held]).await;
    }
    let keys: Vec<_> = kept(rig).await.into_iter().map(|one| one.key).collect();
    assert_eq!(keys, ["e", "d", "c"]);
}

async fn what_is_too_old_goes_with_the_next_end_or_the_slow_repair(rig: &mut Rig) {
    rig.arm_in("z", 2 * HOUR).await;
    keep(rig, 100, 1000).await;
    let (_, held) = rig.run("a").await;
    rig.ack(&[held]).await;
    rig.pass(ms(1000)).await;
    let (_, held) = rig.run("b").await;
    rig.ack(&[held]).await;
    assert_eq!(endings(rig).await, [("b".to_owned(), Ending::Done)]);
    rig.pass(ms(1001)).await;
    rig.repair(RepairTarget::Tombstones).await.expect("it is repaired");
    assert_eq!(kept(rig).await, []);
}

async fn pages_are_read_newest_first_and_end(rig: &mut Rig) {
    rig.arm_in("z", HOUR).await;
    keep(rig, 1000, HOUR).await;
    // Each two in one millisecond.
    for pair in [["a", "b"], ["c", "d"], ["e", "f"]] {
        rig.arm_due(pair).await;
        let held = rig.claim().await.held();
        rig.ack(&held).await;
    }
    let (mut behind, mut all) = (None::<JournalPosition>, Vec::new());
    loop {
        let (page, more) = rig.store.journal(&rig.at, behind.as_ref(), 1).await.expect("a page");
        all.extend(page.iter().cloned());
        behind = page.last().cloned().or(behind);
        if !more || page.is_empty() {
            break;
        }
    }
    assert_eq!(all, positions(rig).await);
    let ended: Vec<_> = all.iter().map(|one| one.ended).collect();
    assert!(ended.len() == 6 && ended.is_sorted_by(|one, next| one >= next), "{ended:?}");
}

async fn what_became_of_one_key_is_found(rig: &mut Rig) {
    rig.arm_in("z", HOUR).await;
    keep(rig, 1000, HOUR).await;
    for key in ["a*", "xa*", "ab", "a*"] {
        let (_, held) = rig.run(key).await;
        rig.ack(&[held]).await;
    }
    let (found, all) = rig.store.journal_of_key(&rig.at, b"a*").await.expect("it can be read");
    let keys: Vec<_> = found.iter().map(|one| one.decode().expect("an end").key).collect();
    assert_eq!((keys, all), (vec!["a*".into(), "a*".into()], true));
    assert!(found[0].ended >= found[1].ended);
}

async fn whoever_asks_for_none_ends_it(rig: &mut Rig) {
    let (_, held) = rig.run("a").await;
    keep(rig, 100, HOUR).await;
    assert!(!keep(rig, 100, HOUR).await);
    rig.ack(&[held]).await;
    assert!(rig.exists(rig.at.key("journal")).await);
    assert!(keep(rig, 0, 0).await);
    assert!(!rig.exists(rig.at.key("journal")).await);
    assert_eq!(bounds(rig).await, None);
    let (_, held) = rig.run("b").await;
    rig.ack(&[held]).await;
    assert!(!rig.exists(rig.at.key("journal")).await);
}

async fn a_value_of_another_type_costs_no_timer_anything(rig: &mut Rig) {
    let (_, held) = rig.run("a").await;
    keep(rig, 100, HOUR).await;
    rig.put_taken(rig.at.key("journal"), "somebody's").await;
    assert_eq!(rig.ack(&[held]).await.gone, [0_usize; 0]);
    assert_eq!(rig.look("a").await, None);
    rig.arm_in("b", 1000).await;
    rig.cancel("b").await;
    let refused = rig.store.journal(&rig.at, None, 1).await.expect_err("it is no journal");
    assert_eq!(refused.kind(), keylapse::ErrorKind::WrongType);
    assert_eq!(refused.key(), Some(rig.at.key("journal").as_bytes()));
}

/// What is not read is not known, but kept.
async fn long_records_are_not_all_read(rig: &mut Rig) {
    let mut timers: Vec<_> = ["a", "b", "c"].map(|key| rig.timer(key, WireWhen::In(0))).into();
    timers.iter_mut().for_each(|timer| timer.payload = vec![b'x'; 3 << 20].into());
    rig.arm_all(&timers).await;
    keep(rig, 100, HOUR).await;
    rig.pass(ms(1)).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.extend(rig.claim().await.held());
    }
    rig.ack(&held).await;
    let known = kept(rig).await.iter().filter(|one| one.arming.is_some()).count();
    assert_eq!((held.len(), known, kept(rig).await.len()), (3, 1, 3));
}
