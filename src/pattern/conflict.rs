//! Two patterns that no rule tells apart.

use std::error::Error;
use std::fmt;

use crate::pattern::Pattern;
use crate::pattern::excerpt::Excerpt;

/// Why a [`Router`](super::Router) refused a pattern: another one is equally specific, and both
/// match some key.
///
/// ```
/// use keylapse::{Pattern, pattern::Router};
///
/// let mut router = Router::new();
/// router.insert(Pattern::new("app:{id}")?, ())?;
/// let conflict = router.insert(Pattern::new("app:{name}")?, ()).unwrap_err();
/// assert_eq!(
///     conflict.to_string(),
///     "patterns `app:{id}` and `app:{name}` are equally specific and both match the key `app:0`; \
///      make one of them more specific, by a literal or a regular expression",
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatternConflict {
    existing: Pattern,
    rejected: Pattern,
    witness: Option<Vec<u8>>,
}

impl PatternConflict {
    pub(super) fn new(existing: Pattern, rejected: Pattern, witness: Option<Vec<u8>>) -> Self {
        Self { existing, rejected, witness }
    }

    /// The pattern that was there before.
    pub fn existing(&self) -> &Pattern {
        &self.existing
    }

    /// The pattern that was refused.
    pub fn rejected(&self) -> &Pattern {
        &self.rejected
    }

    /// A key that both match. `None` if their regular expressions are too complex to be compared,
    /// so that nobody knows whether there is one.
    pub fn witness(&self) -> Option<&[u8]> {
        self.witness.as_deref()
    }
}

impl fmt::Display for PatternConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let existing = Excerpt(self.existing.as_str().as_bytes());
        let rejected = Excerpt(self.rejected.as_str().as_bytes());
        write!(f, "patterns `{existing}` and `{rejected}` are equally specific and ")?;
        match &self.witness {
            Some(key) => write!(
                f,
                "both match the key `{}`; \
                 make one of them more specific, by a literal or a regular expression",
                Excerpt(key)
            ),
            None => f.write_str(
                "may match a common key, \
                 as their regular expressions are too complex to be compared; \
                 tell them apart by a literal, or by simpler expressions",
            ),
        }
    }
}

impl Error for PatternConflict {}
