//! One segment of a pattern, and what it accepts of a key.

use regex::bytes::Regex;

use crate::error::PatternErrorKind;

/// What separates segments, in patterns and in keys.
pub(super) const SEPARATOR: u8 = b':';

/// The segments of a key, the last of so many with all that follow.
pub(super) fn split(key: &[u8], count: usize) -> impl Iterator<Item = &[u8]> {
    key.splitn(count, |&byte| byte == SEPARATOR)
}

/// Ordered from the most specific to the least: that is the rule by which one pattern beats another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Literal,
    /// A capture of one segment that an expression matches.
    Regex,
    /// A capture of any one segment.
    Plain,
    /// A capture of all remaining segments.
    Rest,
}

pub(super) struct Segment {
    pub(super) kind: Kind,
    /// Of a literal its text without escapes, which is never empty; of a capture its name.
    pub(super) text: String,
    /// Anchored at both ends; [`Kind::Regex`] alone has one.
    pub(super) regex: Option<Regex>,
    /// Where it begins in the pattern, for error messages.
    pub(super) offset: usize,
}

impl Segment {
    pub(super) fn is_literal(&self) -> bool {
        self.kind == Kind::Literal
    }

    /// Why this part of a key cannot stand here, if it cannot.
    pub(super) fn fault(&self, part: &[u8]) -> Option<PatternErrorKind> {
        if self.kind != Kind::Rest && part.contains(&SEPARATOR) {
            return Some(PatternErrorKind::SeparatorInValue);
        }
        if part.split(|&byte| byte == SEPARATOR).any(<[u8]>::is_empty) {
            return Some(PatternErrorKind::EmptyValue);
        }
        let fits = match &self.regex {
            Some(regex) => regex.is_match(part),
            None => !self.is_literal() || part == self.text.as_bytes(),
        };
        (!fits).then_some(PatternErrorKind::ValueMismatch)
    }
}
