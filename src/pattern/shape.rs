//! The shape of a pattern: what kind each of its segments is, and nothing else.
//!
//! The rule by which one pattern beats another looks at shapes only, so it *is* the order of this
//! type.

use std::hash::Hasher;

use crate::pattern::segment::{self, Segment, Takes};

/// Ordered from the most specific to the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Literal,
    Regex,
    Plain,
    Rest,
}

/// Ordered segment by segment from the left; of two shapes, the lesser is the more specific.
///
/// Where one shape is the beginning of another the order is of no consequence: no key has both
/// numbers of segments, as a rest stands only at the end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Shape(Vec<Kind>);

impl Shape {
    pub(super) fn of(segments: &[Segment]) -> Self {
        Self(segments.iter().map(Kind::of).collect())
    }

    /// Feeds a hasher with those segments of a key that are literals in this shape.
    ///
    /// `None` if the key has another number of segments, so that no pattern of this shape matches
    /// it. Keys that match one pattern of this shape have the same digest as that pattern.
    pub(super) fn digest(&self, key: &[u8], mut hasher: impl Hasher) -> Option<u64> {
        let mut parts = segment::split(key);
        for kind in &self.0 {
            let part = parts.next()?;
            match kind {
                Kind::Literal => write(&mut hasher, part),
                Kind::Regex | Kind::Plain => {}
                Kind::Rest => return Some(hasher.finish()),
            }
        }
        parts.next().is_none().then(|| hasher.finish())
    }

    /// The digest of all keys that a pattern of this shape matches.
    pub(super) fn digest_of_pattern(segments: &[Segment], mut hasher: impl Hasher) -> u64 {
        for literal in segments.iter().filter_map(Segment::as_literal) {
            write(&mut hasher, literal.as_bytes());
        }
        hasher.finish()
    }
}

/// With its length in front, lest `ab`, `c` and `a`, `bc` give one digest.
fn write(hasher: &mut impl Hasher, part: &[u8]) {
    hasher.write_usize(part.len());
    hasher.write(part);
}

impl Kind {
    fn of(segment: &Segment) -> Self {
        match segment {
            Segment::Literal(_) => Self::Literal,
            Segment::Capture(capture) => match capture.takes {
                Takes::Matching(_) => Self::Regex,
                Takes::One => Self::Plain,
                Takes::Rest => Self::Rest,
            },
        }
    }
}
