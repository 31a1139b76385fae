//! A key, taken apart.

use std::fmt;
use std::sync::Arc;

use crate::Pattern;
use crate::escape::excerpt;

/// A key that matched a pattern, and the parts of it that the pattern names.
///
/// It owns what it needs and can be kept, sent and cloned cheaply. A capture is a segment, so its
/// place in the key follows from its place in the pattern, and nothing else is stored.
///
/// ```
/// # mod keylapse { pub use keylapse_pattern as pattern; }
/// let pattern = keylapse::pattern::Pattern::new("app:{region}:{id}")?;
/// let captures = pattern.matches(b"app:eu:\xff").ok_or("no match")?;
///
/// assert_eq!(captures.get_str("region"), Some("eu"));
/// assert_eq!(captures.get("id"), Some(&b"\xff"[..]));
/// assert_eq!(captures.get_str("id"), None); // not UTF-8
/// assert!(captures.iter().eq([("region", &b"eu"[..]), ("id", &b"\xff"[..])]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Captures {
    pub(super) pattern: Pattern,
    /// The pattern matches it.
    pub(super) key: Arc<[u8]>,
}

impl Captures {
    /// The whole key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The pattern that it matched.
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// What the capture of this name took; `None` if the pattern has no such name.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter().find_map(|(its, value)| (its == name).then_some(value))
    }

    /// As [`get`](Self::get); `None` also if it is not UTF-8.
    pub fn get_str(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(|bytes| str::from_utf8(bytes).ok())
    }

    /// What the capture of this number took, counted from 0 on the left.
    ///
    /// ```
    /// # mod keylapse { pub use keylapse_pattern as pattern; }
    /// let pattern = keylapse::pattern::Pattern::new("app:{region}:x:{id}")?;
    /// let captures = pattern.matches(b"app:eu:x:7").ok_or("no match")?;
    /// assert_eq!(captures.get_index(1), Some(&b"7"[..]));
    /// assert_eq!(captures.get_index(2), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get_index(&self, index: usize) -> Option<&[u8]> {
        self.iter().nth(index).map(|(_, value)| value)
    }

    /// Names and what they took, from left to right. What is yielded goes back into
    /// [`Pattern::build`] to give the same key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let parts = self.pattern.parts(&self.key);
        parts.filter(|(segment, _)| !segment.is_literal()).map(|(segment, part)| (&*segment.text, part))
    }
}

impl fmt::Debug for Captures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for (name, value) in self.iter() {
            map.entry(&name, &format_args!("`{}`", excerpt(value)));
        }
        map.finish()
    }
}
