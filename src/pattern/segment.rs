//! One segment of a pattern, and what it accepts of a key.

use regex::bytes::Regex;

/// What separates segments, in patterns and in keys.
pub(super) const SEPARATOR: u8 = b':';

/// The segments of a key. The empty key has one, which is empty.
pub(super) fn split(key: &[u8]) -> impl Iterator<Item = &[u8]> {
    key.split(|&byte| byte == SEPARATOR)
}

pub(super) enum Segment {
    /// Without its escapes; never empty, never holding a separator.
    Literal(String),
    Capture(Capture),
}

pub(super) struct Capture {
    pub(super) name: String,
    pub(super) takes: Takes,
    /// Where its opening brace stands in the pattern, for error messages.
    pub(super) offset: usize,
}

pub(super) enum Takes {
    /// One segment that the expression, which is anchored at both ends, matches.
    Matching(Regex),
    /// Any one segment.
    One,
    /// All remaining segments.
    Rest,
}

impl Segment {
    pub(super) fn as_literal(&self) -> Option<&str> {
        match self {
            Self::Literal(text) => Some(text),
            Self::Capture(_) => None,
        }
    }

    pub(super) fn as_capture(&self) -> Option<&Capture> {
        match self {
            Self::Literal(_) => None,
            Self::Capture(capture) => Some(capture),
        }
    }

    pub(super) fn is_rest(&self) -> bool {
        matches!(self, Self::Capture(Capture { takes: Takes::Rest, .. }))
    }

    /// Whether one segment of a key fits here. A rest accepts each of its segments.
    pub(super) fn accepts(&self, part: &[u8]) -> bool {
        match self {
            Self::Literal(text) => part == text.as_bytes(),
            Self::Capture(capture) => capture.takes.accepts(part),
        }
    }
}

impl Takes {
    /// As [`Segment::accepts`].
    pub(super) fn accepts(&self, part: &[u8]) -> bool {
        !part.is_empty()
            && match self {
                Self::Matching(regex) => regex.is_match(part),
                Self::One | Self::Rest => true,
            }
    }
}
