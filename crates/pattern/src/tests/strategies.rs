//! Random patterns and keys, put together from the oracle's pieces.

use proptest::prelude::*;
use proptest::sample::select;

use crate::oracle::{LITERALS, Part, REGEXES, SEGMENTS, Spec};

/// Any pattern of up to four segments.
pub(super) fn spec() -> impl Strategy<Value = Spec> {
    let part = prop_oneof![
        3 => select(&LITERALS[..]).prop_map(Part::Literal),
        3 => (0..REGEXES.len()).prop_map(Part::Regex),
        2 => Just(Part::Plain),
    ];
    let parts = prop::collection::vec(part, 0..4);
    (parts, any::<bool>()).prop_map(|(mut parts, rest)| {
        if rest || parts.is_empty() {
            parts.push(Part::Rest);
        }
        Spec(parts)
    })
}

/// A segment of a key; empty now and then.
pub(super) fn segment() -> impl Strategy<Value = Vec<u8>> {
    select(&SEGMENTS[..]).prop_map(<[u8]>::to_vec)
}

/// A key of up to five segments, which now and then are empty.
pub(super) fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(segment(), 1..6).prop_map(|segments| segments.join(&b':'))
}

/// A key that agrees with the pattern at most positions, and mostly at all of them.
pub(super) fn key_near(spec: &Spec) -> impl Strategy<Value = Vec<u8>> + use<> {
    let near = |part: &Part| match *part {
        Part::Literal(text) => prop_oneof![9 => Just(text.as_bytes().to_vec()), 1 => segment()].boxed(),
        Part::Regex(which) => {
            let good: Vec<_> =
                SEGMENTS.into_iter().filter(|s| !s.is_empty() && REGEXES[which].1(s)).collect();
            prop_oneof![9 => select(good).prop_map(<[u8]>::to_vec), 1 => segment()].boxed()
        }
        Part::Plain => segment().boxed(),
        Part::Rest => key().boxed(),
    };
    let segments: Vec<_> = spec.0.iter().map(near).collect();
    segments.prop_map(|segments| segments.join(&b':'))
}
