//! Keys in the order of their scores, as in a sorted set of Redis.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;

/// A millisecond and a fraction of it, in 1/1024 ms: exactly what a score in
/// Redis holds for deadlines below 2^43 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Score(u64);

impl Score {
    const PARTS: u64 = 1024;

    pub(super) fn from_ms(ms: u64) -> Self {
        Self(ms.saturating_mul(Self::PARTS))
    }

    /// The place of the n-th timer within a millisecond; all beyond the last
    /// place share it.
    pub(super) fn nth(ms: u64, n: u64) -> Self {
        Self(Self::from_ms(ms).0.saturating_add(n.min(Self::PARTS - 1)))
    }

    pub(super) fn ms(self) -> u64 {
        self.0 / Self::PARTS
    }
}

/// Keys by score; equal scores by the bytes of the key.
#[derive(Debug, Default)]
pub(super) struct Index {
    order: BTreeSet<(Score, Bytes)>,
    scores: HashMap<Bytes, Score>,
}

impl Index {
    pub(super) fn set(&mut self, key: &Bytes, score: Score) {
        if let Some(old) = self.scores.insert(key.clone(), score) {
            self.order.remove(&(old, key.clone()));
        }
        self.order.insert((score, key.clone()));
    }

    pub(super) fn remove(&mut self, key: &[u8]) {
        if let Some((key, score)) = self.scores.remove_entry(key) {
            self.order.remove(&(score, key));
        }
    }

    pub(super) fn score(&self, key: &[u8]) -> Option<Score> {
        self.scores.get(key).copied()
    }

    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.scores.contains_key(key)
    }

    pub(super) fn len(&self) -> usize {
        self.scores.len()
    }

    pub(super) fn head(&self) -> Option<Score> {
        self.order.first().map(|(score, _)| *score)
    }

    /// The first keys with a score below `end`.
    pub(super) fn below(&self, end: Score, limit: usize) -> Vec<Bytes> {
        let below = self.order.iter().take_while(|(score, _)| *score < end);
        below.take(limit).map(|(_, key)| key.clone()).collect()
    }

    /// Keys by their places.
    pub(super) fn range(&self, skip: usize, count: usize) -> Vec<Bytes> {
        self.order.iter().skip(skip).take(count).map(|(_, key)| key.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_by_score_then_by_bytes() {
        let mut index = Index::default();
        for (key, score) in [("c", Score::from_ms(1)), ("b", Score::from_ms(1)), ("a", Score::nth(1, 1))] {
            index.set(&Bytes::from_static(key.as_bytes()), score);
        }
        assert_eq!(index.range(0, 9), ["b", "c", "a"]);
        assert_eq!(index.below(Score::nth(1, 1), 9), ["b", "c"]);
        assert_eq!(index.range(1, 1), ["c"]);
    }

    #[test]
    fn a_key_has_one_score() {
        let mut index = Index::default();
        let key = Bytes::from_static(b"a");
        index.set(&key, Score::from_ms(1));
        index.set(&key, Score::from_ms(2));
        assert_eq!((index.head(), index.len()), (Some(Score::from_ms(2)), 1));
        index.remove(b"a");
        assert_eq!((index.head(), index.len()), (None, 0));
    }

    #[test]
    fn a_millisecond_has_1024_places() {
        assert!(Score::nth(5, 1022) < Score::nth(5, 1023));
        assert_eq!(Score::nth(5, 1023), Score::nth(5, 3000));
        assert!(Score::nth(5, 3000) < Score::from_ms(6));
    }
}
