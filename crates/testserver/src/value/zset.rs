//! Sorted sets.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::{self, RangeInclusive};

use bytes::Bytes;

use super::{ELEMENT_OVERHEAD_BYTES, ScanMap};

/// Redis stores a sorted set within these limits in one piece.
const COMPACT_MEMBERS: usize = 128;
const COMPACT_BYTES: usize = 64;

/// A score, which is not NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Score(pub(crate) f64);

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// A bound of a range of scores. `(1` is exclusive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    pub(crate) score: f64,
    pub(crate) exclusive: bool,
}

impl Bound {
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let exclusive = text.first() == Some(&b'(');
        let score = crate::number::float(&text[usize::from(exclusive)..])?;
        Some(Self { score, exclusive })
    }

    fn is_above(self, score: f64) -> bool {
        if self.exclusive { self.score > score } else { self.score >= score }
    }

    fn is_below(self, score: f64) -> bool {
        if self.exclusive { self.score < score } else { self.score <= score }
    }
}

/// The members, ordered by score and then by their bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Zset {
    scores: ScanMap<f64>,
    order: BTreeSet<(Score, Bytes)>,
    size: usize,
    spread: bool,
}

impl Zset {
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn is_compact(&self) -> bool {
        !self.spread
    }

    pub(crate) fn score(&self, member: &Bytes) -> Option<f64> {
        self.scores.get(member).copied()
    }

    /// Sets the score of a member, and returns its old score.
    pub(crate) fn set(&mut self, member: &Bytes, score: f64) -> Option<f64> {
        let score = score + 0.0; // changes -0 to 0, as Redis does
        let old = self.scores.insert(member, score);
        match old {
            Some(old) => _ = self.order.remove(&(Score(old), member.clone())),
            None => self.size += 2 * (member.len() + ELEMENT_OVERHEAD_BYTES),
        }
        self.order.insert((Score(score), member.clone()));
        self.spread |= member.len() > COMPACT_BYTES || self.order.len() > COMPACT_MEMBERS;
        old
    }

    pub(crate) fn remove(&mut self, member: &Bytes) -> bool {
        let Some(score) = self.scores.remove(member) else { return false };
        self.size -= 2 * (member.len() + ELEMENT_OVERHEAD_BYTES);
        self.order.remove(&(Score(score), member.clone()))
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&Bytes, f64)> {
        self.order.iter().map(|(score, member)| (member, score.0))
    }

    pub(crate) fn scan(&self, cursor: u64, count: usize) -> (u64, Vec<(&Bytes, &f64)>) {
        if self.spread { self.scores.scan(cursor, count) } else { (0, self.scores.iter().collect()) }
    }

    /// Returns the members between two bounds, in order.
    pub(crate) fn between(&self, low: Bound, high: Bound) -> impl DoubleEndedIterator<Item = (&Bytes, f64)> {
        // `BTreeSet::range` panics if a range starts after its end. Here it is empty.
        let top = high.score.max(low.score);
        let end = match top {
            f64::INFINITY => ops::Bound::Unbounded,
            _ => ops::Bound::Excluded((Score(top.next_up()), Bytes::new())),
        };
        let reach = self.order.range((ops::Bound::Included((Score(low.score), Bytes::new())), end));
        reach
            .map(|(score, member)| (member, score.0))
            .filter(move |(_, score)| low.is_below(*score) && high.is_above(*score))
    }

    /// Returns the position of a member, counted from 0.
    pub(crate) fn rank(&self, member: &Bytes, reverse: bool) -> Option<usize> {
        let score = self.score(member)?;
        let at = self.order.range(..(Score(score), member.clone())).count();
        Some(if reverse { self.len() - 1 - at } else { at })
    }

    /// Returns the members at these positions.
    pub(crate) fn at(&self, positions: RangeInclusive<usize>) -> impl Iterator<Item = (&Bytes, f64)> {
        let count = (positions.end() + 1).saturating_sub(*positions.start());
        self.iter().skip(*positions.start()).take(count)
    }
}
