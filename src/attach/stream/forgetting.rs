//! P11: what was heard of keys is forgotten.

use super::*;

/// Anchored at a second, with a key that was heard to expire behind it.
fn having_heard(key: &Bytes) -> Stream {
    let mut stream = Stream::default();
    stream.canary(Canary { number: 1000, before: 7, writes: false, expires: false });
    assert!(matches!(stream.expired(key), Meaning::Identity(_)));
    stream
}

fn next(stream: &mut Stream, number: u64) {
    let before = stream.number();
    let ring = stream.canary(Canary { number, before, writes: false, expires: false });
    assert_eq!(ring, Ring::Unbroken);
}

#[test]
fn what_was_heard_of_a_key_is_forgotten_after_a_minute() {
    let key = Bytes::from_static(b"a");
    let mut stream = having_heard(&key);
    let there = stream.expired_at(&key);
    next(&mut stream, 60_999);
    assert_eq!(stream.expired_at(&key), there);
    next(&mut stream, 61_000);
    assert_eq!((stream.expired_at(&key), stream.keys.len()), (Place::default(), 0));
}

#[test]
fn a_key_that_is_heard_again_is_remembered_for_another_minute() {
    let key = Bytes::from_static(b"a");
    let mut stream = having_heard(&key);
    next(&mut stream, 50_000);
    stream.expired(&key);
    next(&mut stream, 109_999);
    assert_eq!(stream.keys.len(), 1);
    next(&mut stream, 110_000);
    assert_eq!(stream.keys.len(), 0);
}

#[test]
fn of_more_than_half_a_million_keys_all_are_forgotten() {
    let mut stream = having_heard(&Bytes::from_static(b"first"));
    let hear = |stream: &mut Stream, number: usize| {
        stream.gone(&Bytes::from(number.to_string()));
    };
    (1..500_000).for_each(|number| hear(&mut stream, number));
    next(&mut stream, 1001);
    assert_eq!(stream.keys.len(), 500_000);
    hear(&mut stream, 0);
    next(&mut stream, 1002);
    assert_eq!(stream.keys.len(), 0);
}
