//! What can be wrong with a pattern, with values for one, or with two patterns.

use std::error::Error;
use std::fmt;

use crate::Pattern;
use crate::escape::excerpt;

/// A pattern that could not be compiled, or values from which its key could not be built.
///
/// The message is one line, with control characters escaped, and ends with what to do instead.
///
/// ```
/// # mod keylapse { pub use keylapse_pattern as pattern; }
/// use keylapse::pattern::{Pattern, PatternErrorKind};
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
/// # Ok::<(), keylapse::pattern::PatternError>(())
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
    pub(super) fn new(pattern: &str, kind: PatternErrorKind, offset: usize, detail: String) -> Self {
        Self { pattern: pattern.into(), kind, offset, detail }
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
        let pattern = excerpt(self.pattern.as_bytes());
        write!(f, "pattern `{pattern}`, byte {}: {statement}", self.offset)?;
        if !self.detail.is_empty() {
            write!(f, ": {}", excerpt(self.detail.as_bytes()))?;
        }
        write!(f, "; {hint}")
    }
}

impl Error for PatternError {}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident: $statement:literal, $hint:literal;)*) => {
        /// What is wrong with a pattern, or with values for one.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum PatternErrorKind {
            $($(#[$doc])* $kind,)*
        }

        impl PatternErrorKind {
            /// What is wrong, and what to write instead.
            fn texts(self) -> (&'static str, &'static str) {
                match self {
                    $(Self::$kind => ($statement, $hint),)*
                }
            }
        }
    };
}

// Each with what is wrong, and what to write instead.
kinds! {
    /// There is nothing in it.
    Empty: "it is empty", "write at least one segment, such as `orders:{id}`";
    /// It has more than 1024 bytes.
    TooLong: "it is longer than 1024 bytes", "shorten its literals and regular expressions";
    /// It has more than 32 segments.
    TooManySegments: "it has more than 32 segments", "capture the remaining ones together by `{rest..}`";
    /// It contains a newline, a NUL or another control character.
    ControlCharacter: "control character",
        "remove it, or match it by an escape in a regular expression, such as `{name:\\x00}`";
    /// It starts or ends with `:`, or has two in a row.
    EmptySegment: "a segment is empty",
        "remove the surplus ':', or write `{name}` for what stands there in a key";
    /// A segment in the notation of another pattern language: `*`, `**`, `?`, `<name>`.
    ForeignCapture: "not a capture",
        "write `{name}` for one segment, `{name..}` for all that remain, `{name:regex}` to match the characters \
         themselves";
    /// A segment is partly a capture and partly something else.
    CaptureBesideText: "a capture must be a whole segment",
        "write a ':' between, or one capture with a regular expression such as `{id:order-[0-9]+}`";
    /// A `{` without its `}`.
    UnclosedBrace: "a '{' is never closed",
        "write '}' at the end of the capture, `{{` for a literal brace, `\\{` for one in a \
         regular expression";
    /// A `}` without its `{`.
    UnopenedBrace: "a '}' was never opened", "write `}}` for a literal brace";
    /// A capture without a name.
    EmptyName: "a capture has no name", "name it, such as `{id}` or `{id:[0-9]+}`";
    /// A capture with a name that is not `[A-Za-z_][A-Za-z0-9_]*`.
    InvalidName: "not a name", "use ASCII letters, digits and '_', beginning with a letter or '_'";
    /// Two captures with one name.
    DuplicateName: "two captures have one name", "rename one of them";
    /// The regular expression has a syntax error.
    InvalidRegex: "invalid regular expression",
        r"correct it; braces in it must balance, or be written `\{` and `\}`";
    /// The regular expression takes too much memory when compiled.
    RegexTooLarge: "the regular expression is too large when compiled",
        r"lower its repetitions, or write an ASCII class such as `[A-Za-z0-9_]` for `\w`";
    /// The regular expression matches no segment at all.
    RegexMatchesNothing: "the regular expression matches no segment",
        "it sees one segment, which is never empty and never contains ':'; write `{a}:{b}` for two \
         segments, `{name..}` for all that remain";
    /// A `{name..}` that is not the last segment.
    RestNotLast: "nothing can follow a capture of all remaining segments",
        "move it to the end, or write `{name}` for one segment";
    /// [`Pattern::build`](super::Pattern::build) got fewer values than there are captures.
    MissingValue: "no value for a capture", "give one value for each";
    /// [`Pattern::build`](super::Pattern::build) got more values than there are captures.
    SurplusValue: "more values than captures", "give one value for each";
    /// A value is empty, or a segment of it is.
    EmptyValue: "empty value or segment", "segments of a key are never empty; leave out the surplus ':'";
    /// A value for one segment contains a `:`.
    SeparatorInValue: "value with a ':'", "encode it, or write `{name..}` as the last segment of the pattern";
    /// A value that the capture's regular expression does not match.
    ValueMismatch: "value that the regular expression does not match", "correct the value or the pattern";
}

/// Why a [`Router`](super::Router) refused a pattern: another one is equally specific, and both
/// match some key.
///
/// ```
/// # mod keylapse { pub use keylapse_pattern as pattern; }
/// use keylapse::pattern::{Pattern, Router};
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
    pub(super) existing: Pattern,
    pub(super) rejected: Pattern,
    pub(super) witness: Option<Vec<u8>>,
}

impl PatternConflict {
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
        let existing = excerpt(self.existing.as_str().as_bytes());
        let rejected = excerpt(self.rejected.as_str().as_bytes());
        write!(f, "patterns `{existing}` and `{rejected}` are equally specific and ")?;
        match &self.witness {
            Some(key) => write!(
                f,
                "both match the key `{}`; \
                 make one of them more specific, by a literal or a regular expression",
                excerpt(key)
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
