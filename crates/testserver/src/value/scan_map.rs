//! A map in the order of the hashes of its keys.
//!
//! The order is the same in each run, and a scan can resume at a cursor. A scan returns each key that exists during the
//! whole scan, even if other keys are added or removed.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Bound;

use bytes::Bytes;

#[derive(Clone, Debug)]
pub(crate) struct ScanMap<V>(BTreeMap<(u32, Bytes), V>);

impl<V> Default for ScanMap<V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

fn with_hash(key: &Bytes) -> (u32, Bytes) {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    ((hasher.finish() >> 32) as u32, key.clone())
}

impl<V> ScanMap<V> {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&self, key: &Bytes) -> Option<&V> {
        self.0.get(&with_hash(key))
    }

    pub(crate) fn get_mut(&mut self, key: &Bytes) -> Option<&mut V> {
        self.0.get_mut(&with_hash(key))
    }

    pub(crate) fn contains(&self, key: &Bytes) -> bool {
        self.0.contains_key(&with_hash(key))
    }

    pub(crate) fn insert(&mut self, key: &Bytes, value: V) -> Option<V> {
        self.0.insert(with_hash(key), value)
    }

    pub(crate) fn remove(&mut self, key: &Bytes) -> Option<V> {
        self.0.remove(&with_hash(key))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Bytes, &V)> {
        self.0.iter().map(|((_, key), value)| (key, value))
    }

    /// Returns about `count` entries from the cursor on, and the next cursor, which is 0 at the end. Keys with the same hash
    /// are on the same page, because a cursor is a hash.
    pub(crate) fn scan(&self, cursor: u64, count: usize) -> (u64, Vec<(&Bytes, &V)>) {
        let Ok(from) = u32::try_from(cursor) else { return (0, Vec::new()) };
        let mut page = Vec::new();
        let mut last = None;
        for ((hash, key), value) in self.0.range((from, Bytes::new())..) {
            if page.len() >= count && last != Some(*hash) {
                return (u64::from(*hash), page);
            }
            last = Some(*hash);
            page.push((key, value));
        }
        (0, page)
    }

    /// Returns the first key from this hash on, or else the first of all.
    pub(crate) fn near(&self, point: u32) -> Option<&Bytes> {
        let after = (Bound::Included((point, Bytes::new())), Bound::Unbounded);
        let found = self.0.range(after).next().or_else(|| self.0.iter().next());
        found.map(|((_, key), _)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_scan_sees_all_that_is_there_all_the_while() {
        let mut map = ScanMap::default();
        let key = |n: u32| Bytes::from(n.to_string());
        for n in 0..500 {
            map.insert(&key(n), n);
        }
        let (mut cursor, mut seen) = (0, BTreeSet::new());
        for round in 0.. {
            let (next, page) = map.scan(cursor, 7);
            seen.extend(page.iter().map(|(_, n)| **n));
            map.remove(&key(400 + round));
            map.insert(&key(1000 + round), 1000 + round);
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        assert!((0..400).all(|n| seen.contains(&n)));
    }
}
