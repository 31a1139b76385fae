//! From a key to the most specific of many patterns.
//!
//! Patterns of one [`Shape`] differ only in their literals and regular expressions, so each shape
//! keeps a hash table over the literals, and shapes are asked from the most specific to the least.
//! The first pattern that matches is the answer: more specific shapes were asked before, and within
//! a shape no two patterns match a common key, or the second would have been refused. A key with
//! the literals of none costs one look-up per shape and runs no regular expression.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hash, Hasher};

use crate::Pattern;
use crate::error::PatternConflict;
use crate::overlap::Overlap;
use crate::parse::{Kind, split};

/// The kinds of a pattern's segments; of two shapes, the lesser is the more specific.
///
/// Where one shape is the beginning of another the order is of no consequence: no key has both
/// numbers of segments, as a rest stands only at the end.
type Shape = Vec<Kind>;

/// Patterns with a value each; a key leads to the most specific pattern that matches it.
///
/// [Which one that is](super#which-pattern-wins) never depends on the order in which they came.
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
    /// Per shape, from the digest of the literals to positions in `routes`.
    tables: BTreeMap<Shape, HashMap<u64, Vec<usize>>>,
    /// Randomly keyed: keys are written by strangers.
    hasher: RandomState,
}

impl<V> Router<V> {
    /// A router without patterns.
    pub fn new() -> Self {
        Self { routes: Vec::new(), tables: BTreeMap::new(), hasher: RandomState::new() }
    }

    /// Adds a pattern.
    ///
    /// # Errors
    ///
    /// If a pattern is there already that is equally specific and matches a common key. Whether two
    /// regular expressions have a common match is decided exactly, except where they are too
    /// complex to be compared, which counts as a conflict too. The router stays as it was.
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
        let (shape, texts): (Shape, Vec<_>) = pattern.segments().iter().map(|s| (s.kind, &*s.text)).unzip();
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

    /// The most specific pattern that matches the key, and its value.
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
            // The digest may coincide for other literals, so the pattern has the last word.
            let (pattern, value) = peers.find(|(pattern, _)| pattern.is_match(key))?;
            Some((pattern, value))
        })
    }

    /// Of those segments of a key that are literals in this shape: a pattern's own texts, as a key,
    /// give the digest of all keys that it matches.
    pub(super) fn digest(&self, shape: &[Kind], key: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        for (kind, part) in shape.iter().zip(split(key, shape.len())) {
            if *kind == Kind::Literal {
                part.hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    /// All patterns with their values, in the order of insertion.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Pattern, &V)> {
        self.routes.iter().map(|(pattern, value)| (pattern, value))
    }

    /// How many patterns there are.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }
}

impl<V> Default for Router<V> {
    fn default() -> Self {
        Self::new()
    }
}
