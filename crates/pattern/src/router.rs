//! Finds the most specific of many patterns for a key.
//!
//! Patterns with the same [`SegmentKinds`] differ only in their literals and regular expressions. Each list of kinds has a
//! hash table by the literals, and a look-up goes through the lists from the most specific to the least. The first pattern
//! that matches is the result, as no two patterns with the same kinds match a common key. A key with the literals of no
//! pattern costs one look-up for each list of kinds, and runs no regular expression.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hash, Hasher};

use crate::Pattern;
use crate::error::PatternConflict;
use crate::overlap::Overlap;
use crate::parse::{Kind, split};

/// The kinds of a pattern's segments. The lesser of two lists is the more specific.
///
/// If one list is the beginning of another, their order does not matter: a rest can only be the last segment, so no key has
/// both numbers of segments.
type SegmentKinds = Vec<Kind>;

/// A map from patterns to values. A look-up returns the most specific pattern that matches a key.
///
/// [The winning pattern](super#which-pattern-wins) never depends on the order of insertion.
///
/// ```
/// # mod keylapse { pub use keylapse_pattern as pattern; }
/// use keylapse::pattern::{Pattern, Router};
///
/// let mut router = Router::new();
/// router.insert(Pattern::new("app:{rest..}")?, "anything")?;
/// router.insert(Pattern::new("app:{kind}:{id}")?, "by kind")?;
/// router.insert(Pattern::new("app:order:{id}")?, "an order")?;
/// router.insert(Pattern::new("app:order:{id:[0-9]+}")?, "a numbered order")?;
///
/// let found = |key: &str| router.route(key.as_bytes()).map(|(_, value)| *value);
/// assert_eq!(found("app:order:42"), Some("a numbered order"));
/// assert_eq!(found("app:order:x"), Some("an order"));
/// assert_eq!(found("app:user:x"), Some("by kind"));
/// assert_eq!(found("app:user:x:y"), Some("anything"));
/// assert_eq!(found("other:user:x"), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Router<V> {
    routes: Vec<(Pattern, V)>,
    /// For each list of kinds, a map from the digest of the literals to indices in `routes`.
    tables: BTreeMap<SegmentKinds, HashMap<u64, Vec<usize>>>,
    /// Has a random key, as untrusted programs may choose the keys.
    hasher: RandomState,
}

impl<V> Router<V> {
    /// Creates a router without patterns.
    pub fn new() -> Self {
        Self { routes: Vec::new(), tables: BTreeMap::new(), hasher: RandomState::new() }
    }

    /// Adds a pattern.
    ///
    /// # Errors
    ///
    /// The router has an equally specific pattern that matches a common key. The comparison of regular expressions is exact.
    /// If they are too complex to be compared, this counts as a conflict. The router does not change.
    ///
    /// ```
    /// # mod keylapse { pub use keylapse_pattern as pattern; }
    /// use keylapse::pattern::{Pattern, Router};
    ///
    /// let mut router = Router::new();
    /// router.insert(Pattern::new("app:{id:[0-9]+}")?, 1)?;
    /// router.insert(Pattern::new("app:{name:[a-z]+}")?, 2)?; // no key is both
    ///
    /// let conflict = router.insert(Pattern::new("app:{hex:[0-9a-f]+}")?, 3).unwrap_err();
    /// assert_eq!(conflict.existing().as_str(), "app:{id:[0-9]+}");
    /// assert_eq!(conflict.witness(), Some(&b"app:0"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn insert(&mut self, pattern: Pattern, value: V) -> Result<(), PatternConflict> {
        let (shape, texts): (SegmentKinds, Vec<_>) =
            pattern.segments().iter().map(|s| (s.kind, &*s.text)).unzip();
        let digest = self.digest(&shape, texts.join(":").as_bytes());
        let peers = self.tables.entry(shape).or_default().entry(digest).or_default();
        for &peer in &*peers {
            let existing = &self.routes[peer].0;
            let witness = match existing.overlap(&pattern) {
                Overlap::Disjoint => continue,
                Overlap::Witness(key) => Some(key),
                Overlap::Undecided => None,
            };
            return Err(PatternConflict { existing: existing.clone(), rejected: pattern, witness });
        }
        peers.push(self.routes.len());
        self.routes.push((pattern, value));
        Ok(())
    }

    /// Returns the most specific pattern that matches the key, and its value.
    ///
    /// ```
    /// # mod keylapse { pub use keylapse_pattern as pattern; }
    /// use keylapse::pattern::{Pattern, Router};
    ///
    /// let mut router = Router::new();
    /// router.insert(Pattern::new("app:{id}")?, "handler")?;
    ///
    /// let (pattern, handler) = router.route(b"app:7").ok_or("no route")?;
    /// assert_eq!((pattern.as_str(), *handler), ("app:{id}", "handler"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn route(&self, key: &[u8]) -> Option<(&Pattern, &V)> {
        self.tables.iter().find_map(|(shape, table)| {
            let mut peers = table.get(&self.digest(shape, key))?.iter().map(|&at| &self.routes[at]);
            // Different literals may have the same digest, so the pattern itself decides.
            let (pattern, value) = peers.find(|(pattern, _)| pattern.is_match(key))?;
            Some((pattern, value))
        })
    }

    /// Returns the digest of the segments of a key that are literals in `shape`. The texts of a pattern's segments, joined
    /// as a key, have the digest of all keys that the pattern matches.
    pub(super) fn digest(&self, shape: &[Kind], key: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        for (kind, part) in shape.iter().zip(split(key, shape.len())) {
            if *kind == Kind::Literal {
                part.hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    /// Returns all patterns with their values, in the order of insertion.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Pattern, &V)> {
        self.routes.iter().map(|(pattern, value)| (pattern, value))
    }

    /// Returns the number of patterns.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Returns whether the router has no patterns.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }
}

impl<V> Default for Router<V> {
    fn default() -> Self {
        Self::new()
    }
}
