//! Random patterns and keys, built from the oracle's parts.

use proptest::prelude::*;
use proptest::sample::select;

use crate::oracle::{LITERALS, REGEXES, SEGMENTS, Spec, SpecPart};

/// Returns patterns of up to four segments.
pub(super) fn spec() -> impl Strategy<Value = Spec> {
    let part = prop_oneof![
        3 => select(&LITERALS[..]).prop_map(SpecPart::Literal),
        3 => (0..REGEXES.len()).prop_map(SpecPart::Regex),
        2 => Just(SpecPart::Plain),
    ];
    let parts = prop::collection::vec(part, 0..4);
    (parts, any::<bool>()).prop_map(|(mut parts, rest)| {
        if rest || parts.is_empty() {
            parts.push(SpecPart::Rest);
        }
        Spec(parts)
    })
}

/// Returns segments of keys, sometimes empty ones.
pub(super) fn segment() -> impl Strategy<Value = Vec<u8>> {
    select(&SEGMENTS[..]).prop_map(<[u8]>::to_vec)
}

/// Returns keys of up to five segments, some of which may be empty.
pub(super) fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(segment(), 1..6).prop_map(|segments| segments.join(&b':'))
}

/// Returns keys that agree with the pattern at most positions, and often at all.
pub(super) fn key_near(spec: &Spec) -> impl Strategy<Value = Vec<u8>> + use<> {
    let near = |part: &SpecPart| match *part {
        SpecPart::Literal(text) => prop_oneof![9 => Just(text.as_bytes().to_vec()), 1 => segment()].boxed(),
        SpecPart::Regex(which) => {
            let good: Vec<_> =
                SEGMENTS.into_iter().filter(|s| !s.is_empty() && REGEXES[which].1(s)).collect();
            prop_oneof![9 => select(good).prop_map(<[u8]>::to_vec), 1 => segment()].boxed()
        }
        SpecPart::Plain => segment().boxed(),
        SpecPart::Rest => key().boxed(),
    };
    let segments: Vec<_> = spec.0.iter().map(near).collect();
    segments.prop_map(|segments| segments.join(&b':'))
}
