//! Is there a key that two patterns both match?

use crate::pattern::segment::{Segment, Takes};
use crate::pattern::{Pattern, SEPARATOR, language};

/// The answer, for a segment as for a whole key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Overlap {
    /// There is none.
    Disjoint,
    /// There is; here is one of the shortest.
    Witness(Vec<u8>),
    /// Finding out would take more memory than it is worth.
    Undecided,
}

impl Pattern {
    /// Segments are independent of each other, so two patterns have a common key exactly if they
    /// have a common segment at every position.
    pub(super) fn overlap(&self, other: &Self) -> Overlap {
        let positions = self.segments().len().max(other.segments().len());
        let mut key = Vec::new();
        let mut decided = true;
        for at in 0..positions {
            // One of them ends here, and the other does not.
            let (Some(mine), Some(theirs)) = (self.segment_at(at), other.segment_at(at)) else {
                return Overlap::Disjoint;
            };
            if at > 0 {
                key.push(SEPARATOR);
            }
            match mine.overlap(theirs) {
                // Also after an undecided position: one that is disjoint settles the matter.
                Overlap::Disjoint => return Overlap::Disjoint,
                Overlap::Witness(part) => key.extend(part),
                Overlap::Undecided => decided = false,
            }
        }
        if decided { Overlap::Witness(key) } else { Overlap::Undecided }
    }

    /// What judges the segment at this position, a rest all that follow it.
    fn segment_at(&self, at: usize) -> Option<&Segment> {
        let rest = || self.segments().last().filter(|last| last.is_rest());
        self.segments().get(at).or_else(rest)
    }
}

impl Segment {
    fn overlap(&self, other: &Self) -> Overlap {
        match (self, other) {
            (Self::Literal(text), segment) | (segment, Self::Literal(text)) => {
                if segment.accepts(text.as_bytes()) {
                    Overlap::Witness(text.clone().into_bytes())
                } else {
                    Overlap::Disjoint
                }
            }
            (Self::Capture(one), Self::Capture(two)) => {
                language::common_segment(one.takes.language(), two.takes.language())
            }
        }
    }
}

impl Takes {
    /// A regular expression for what is accepted of one segment.
    fn language(&self) -> &str {
        match self {
            Self::Matching(regex) => regex.as_str(),
            Self::One | Self::Rest => language::ANYTHING,
        }
    }
}
