//! Tests of the evidence of a stream on a key, and of P11: events of keys are forgotten.

use super::*;

const KEY: Bytes = Bytes::from_static(b"a");

fn canary(number: u64, before: u64) -> Canary {
    Canary { number, before, writes: false, expires: false }
}

fn at(canary: u64, count: u32) -> Position {
    Position { canary, count, ..Position::default() }
}

fn tracked(deadline: u64, at: Position) -> TrackedKey {
    TrackedKey { key: KEY, head: Bytes::new(), deadline, at, announced_elsewhere: false }
}

fn anchored() -> Stream {
    let mut stream = Stream::default();
    assert!(!stream.apply_canary(canary(1000, 7)));
    stream.set_anchor_time(ServerTime::from_ms(1005));
    stream
}

#[test]
fn before_its_first_canary_and_in_a_gap_nothing_has_a_position() {
    let mut stream = Stream::default();
    assert_eq!(stream.apply_expiry(&KEY), None);
    let mut stream = anchored();
    stream.remove_anchor();
    assert_eq!(stream.apply_expiry(&KEY), None);
    assert_eq!(stream.position_of(&KEY), at(0, 0));
}

#[test]
fn expiries_of_a_key_are_counted_from_each_canary() {
    let mut stream = anchored();
    let other = Bytes::from_static(b"b");
    assert_eq!(stream.apply_expiry(&KEY), Some(at(1000, 1)));
    assert_eq!(stream.apply_expiry(&KEY), Some(at(1000, 2)));
    assert_eq!(stream.apply_expiry(&other), Some(at(1000, 1)));
    assert!(stream.apply_canary(canary(2000, 1000)));
    assert_eq!(stream.position_of(&KEY), at(2000, 0));
    assert_eq!(stream.apply_expiry(&KEY), Some(at(2000, 1)));
}

#[test]
fn a_canary_whose_predecessor_was_not_heard_begins_anew() {
    let mut stream = anchored();
    assert!(!stream.apply_canary(canary(3000, 2000)));
    stream.remove_anchor();
    assert!(!stream.apply_canary(canary(4000, 3000)));
}

#[test]
fn what_was_heard_of_a_watched_life_is_later_than_the_reading() {
    let mut stream = anchored();
    stream.apply_expiry(&KEY);
    assert_eq!(stream.evidence_for(&tracked(1500, at(1000, 0)), 1000), StreamEvidence::Expired);
    assert_eq!(stream.evidence_for(&tracked(1500, at(1000, 1)), 1000), StreamEvidence::NothingYet);
    stream.apply_deletion(&KEY);
    assert_eq!(stream.evidence_for(&tracked(1500, at(1000, 1)), 1000), StreamEvidence::NothingYet);
    assert_eq!(stream.evidence_for(&tracked(1500, at(900, 1)), 1000), StreamEvidence::Expired);
    stream.apply_canary(canary(2000, 1000));
    assert_eq!(stream.evidence_for(&tracked(1500, at(1000, 1)), 1000), StreamEvidence::Deleted);
    assert_eq!(stream.evidence_for(&tracked(1500, at(2000, 0)), 1000), StreamEvidence::Nothing);
}

#[test]
fn a_deletion_before_a_gap_says_nothing_after_it() {
    let mut stream = anchored();
    stream.apply_deletion(&KEY);
    stream.apply_canary(canary(3000, 2000));
    stream.set_anchor_time(ServerTime::from_ms(3005));
    assert_eq!(stream.evidence_for(&tracked(1500, at(1000, 0)), 3000), StreamEvidence::Broken);
}

#[test]
fn a_deletion_is_not_the_last_that_was_heard_of_a_key_that_expired_since() {
    let mut stream = anchored();
    stream.apply_deletion(&KEY);
    assert_eq!(stream.deleted_at(&KEY), Some(at(1000, 0)));
    stream.apply_expiry(&KEY);
    assert_eq!(stream.deleted_at(&KEY), None);
}

#[test]
fn nothing_is_proven_from_an_anchor_before_the_deadline_to_a_canary_after_the_touch() {
    let mut stream = anchored();
    for (deadline, read, unbroken) in [(1006, 900, true), (1005, 900, false), (1, 1000, true)] {
        let tracked = tracked(deadline, at(read, 0));
        let expected = if unbroken { StreamEvidence::NothingYet } else { StreamEvidence::Broken };
        assert_eq!(stream.evidence_for(&tracked, 1000), expected, "{deadline} {read}");
    }
    stream.apply_canary(canary(2000, 1000));
    assert_eq!(stream.evidence_for(&tracked(1006, at(900, 0)), 1000), StreamEvidence::Nothing);
    assert_eq!(stream.evidence_for(&tracked(1006, at(900, 0)), 2000), StreamEvidence::NothingYet);
}

#[test]
fn until_the_time_of_the_anchor_is_known_nothing_is_said() {
    let mut stream = Stream::default();
    stream.apply_canary(canary(1000, 0));
    stream.apply_canary(canary(2000, 1000));
    assert_eq!(stream.evidence_for(&tracked(1, at(900, 0)), 1000), StreamEvidence::NothingYet);
}

/// Returns a stream that is anchored at heartbeat 1000, with one expiry of the key after that.
fn having_heard(key: &Bytes) -> Stream {
    let mut stream = Stream::default();
    stream.apply_canary(canary(1000, 7));
    assert!(stream.apply_expiry(key).is_some());
    stream
}

fn next(stream: &mut Stream, number: u64) {
    assert!(stream.apply_canary(canary(number, stream.last_canary)));
}

#[test]
fn what_was_heard_of_a_key_is_forgotten_after_a_minute() {
    let mut stream = having_heard(&KEY);
    next(&mut stream, 60_999);
    assert_eq!(stream.keys[&KEY].expired, StreamOffset { canary: 1000, count: 1 });
    next(&mut stream, 61_000);
    assert_eq!(stream.keys.len(), 0);
}

#[test]
fn a_key_that_is_heard_again_is_remembered_for_another_minute() {
    let mut stream = having_heard(&KEY);
    next(&mut stream, 50_000);
    stream.apply_expiry(&KEY);
    next(&mut stream, 109_999);
    assert_eq!(stream.keys.len(), 1);
    next(&mut stream, 110_000);
    assert_eq!(stream.keys.len(), 0);
}

#[test]
fn of_more_than_half_a_million_keys_all_are_forgotten() {
    let mut stream = having_heard(&Bytes::from_static(b"first"));
    let delete = |stream: &mut Stream, number: usize| {
        stream.apply_deletion(&Bytes::from(number.to_string()));
    };
    (1..500_000).for_each(|number| delete(&mut stream, number));
    next(&mut stream, 1001);
    assert_eq!(stream.keys.len(), 500_000);
    delete(&mut stream, 0);
    next(&mut stream, 1002);
    assert_eq!(stream.keys.len(), 0);
}

#[test]
fn where_numbers_were_set_back_nothing_that_was_heard_before_counts() {
    let mut stream = having_heard(&KEY);
    let ahead = tracked(1500, at(100_000, 0));
    stream.apply_canary(canary(100_000, 1000));
    assert_eq!(stream.evidence_for(&ahead, 0), StreamEvidence::Nothing);
    assert!(!stream.apply_canary(canary(10_000, 9000)));
    assert_eq!((stream.keys.len(), stream.evidence_for(&ahead, 0)), (0, StreamEvidence::Broken));
}

/// The slot of a key may move there and back. Recording an expiry that another server announced leaves the key tracked.
#[test]
fn a_life_whose_end_another_server_has_announced_has_expired_whatever_was_missed_where_it_was_read() {
    let answered = TrackedKey { announced_elsewhere: true, ..tracked(1500, at(900, 0)) };
    assert_eq!(anchored().evidence_for(&answered, 1000), StreamEvidence::Expired);
    let mut broken = anchored();
    broken.remove_anchor();
    assert_eq!(broken.evidence_for(&answered, 1000), StreamEvidence::Expired);
}
