//! What can be wrong with a pattern, or with values for one.

use std::error::Error;
use std::fmt;

use crate::pattern::excerpt::Excerpt;
use crate::pattern::kind::PatternErrorKind;

/// A pattern that could not be compiled, or values from which its key could not be built.
///
/// The message is one line, with control characters escaped, and ends with what to do instead.
///
/// ```
/// use keylapse::{Pattern, pattern::PatternErrorKind};
///
/// let error = Pattern::new("app:order-{id}").unwrap_err();
/// assert_eq!(error.kind(), PatternErrorKind::CaptureBesideText);
/// assert_eq!(error.pattern(), "app:order-{id}");
/// assert_eq!(error.offset(), 10);
/// assert_eq!(
///     error.to_string(),
///     "pattern `app:order-{id}`, byte 10: a capture must be a whole segment; \
///      write a ':' between, or one capture with a regular expression such as `{id:order-[0-9]+}`",
/// );
/// # Ok::<(), keylapse::PatternError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatternError {
    pattern: Box<str>,
    kind: PatternErrorKind,
    offset: usize,
    detail: String,
}

impl PatternError {
    /// The detail completes the kind's statement; it may be empty.
    pub(super) fn new(
        pattern: &str,
        kind: PatternErrorKind,
        offset: usize,
        detail: impl Into<String>,
    ) -> Self {
        Self { pattern: pattern.into(), kind, offset, detail: detail.into() }
    }

    /// The pattern, as it was given.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// What is wrong.
    pub fn kind(&self) -> PatternErrorKind {
        self.kind
    }

    /// Where in the pattern, in bytes: the beginning of what is wrong, or of the capture that
    /// a value was for.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// What to write instead.
    pub fn hint(&self) -> &'static str {
        self.kind.texts().1
    }
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (statement, hint) = self.kind.texts();
        let pattern = Excerpt(self.pattern.as_bytes());
        write!(f, "pattern `{pattern}`, byte {}: {statement}", self.offset)?;
        if !self.detail.is_empty() {
            write!(f, ": {}", Excerpt(self.detail.as_bytes()))?;
        }
        write!(f, "; {hint}")
    }
}

impl Error for PatternError {}
