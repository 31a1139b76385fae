//! The errors of patterns, of values for them, and of conflicting patterns.

use std::error::Error;
use std::fmt;

use crate::Pattern;
use crate::escape::excerpt;

/// The error of a pattern that cannot be compiled, or of values from which no key can be built.
///
/// The message is one line with control characters escaped. It ends with advice.
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
    /// Creates an error. `detail` follows the text of the kind; it may be empty.
    pub(super) fn new(pattern: &str, kind: PatternErrorKind, offset: usize, detail: String) -> Self {
        Self { pattern: pattern.into(), kind, offset, detail }
    }

    /// Returns the source of the pattern.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> PatternErrorKind {
        self.kind
    }

    /// Returns the byte offset in the pattern of the invalid part, or of the capture with the invalid value.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns advice for a correction.
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
        /// The kind of a [`PatternError`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum PatternErrorKind {
            $($(#[$doc])* $kind,)*
        }

        impl PatternErrorKind {
            /// Returns the text of the kind, and the advice.
            fn texts(self) -> (&'static str, &'static str) {
                match self {
                    $(Self::$kind => ($statement, $hint),)*
                }
            }
        }
    };
}

// Each kind has a text and advice.
kinds! {
    /// The pattern is empty.
    Empty: "it is empty", "write at least one segment, such as `orders:{id}`";
    /// The pattern has more than 1024 bytes.
    TooLong: "it is longer than 1024 bytes", "shorten its literals and regular expressions";
    /// The pattern has more than 32 segments.
    TooManySegments: "it has more than 32 segments", "capture the remaining ones together by `{rest..}`";
    /// The pattern contains a newline, a NUL or another control character.
    ControlCharacter: "control character",
        "remove it, or match it by an escape in a regular expression, such as `{name:\\x00}`";
    /// The pattern starts or ends with `:`, or has two in a row.
    EmptySegment: "a segment is empty",
        "remove the surplus ':', or write `{name}` to capture a segment";
    /// A segment uses the notation of another pattern language: `*`, `**`, `?`, `<name>`.
    ForeignCapture: "not a capture",
        "write `{name}` for one segment, `{name..}` for all that remain, `{name:regex}` to match the characters \
         themselves";
    /// A segment is partly a capture and partly text.
    CaptureBesideText: "a capture must be a whole segment",
        "write a ':' between, or one capture with a regular expression such as `{id:order-[0-9]+}`";
    /// A `{` has no `}`.
    UnclosedBrace: "a '{' is never closed",
        "write '}' at the end of the capture, `{{` for a literal brace, `\\{` for one in a \
         regular expression";
    /// A `}` has no `{`.
    UnopenedBrace: "a '}' was never opened", "write `}}` for a literal brace";
    /// A capture has no name.
    EmptyName: "a capture has no name", "name it, such as `{id}` or `{id:[0-9]+}`";
    /// The name of a capture does not match `[A-Za-z_][A-Za-z0-9_]*`.
    InvalidName: "not a name", "use ASCII letters, digits and '_', beginning with a letter or '_'";
    /// Two captures have the same name.
    DuplicateName: "two captures have one name", "rename one of them";
    /// A regular expression has a syntax error.
    InvalidRegex: "invalid regular expression",
        r"correct it; braces in it must balance, or be written `\{` and `\}`";
    /// A regular expression needs more than 1 MiB when compiled.
    RegexTooLarge: "the regular expression is too large when compiled",
        r"lower its repetitions, or write an ASCII class such as `[A-Za-z0-9_]` for `\w`";
    /// A regular expression cannot match any segment.
    RegexMatchesNothing: "the regular expression matches no segment",
        "it sees one segment, which is never empty and never contains ':'; write `{a}:{b}` for two \
         segments, `{name..}` for all that remain";
    /// A `{name..}` is not the last segment.
    RestNotLast: "nothing can follow a capture of all remaining segments",
        "move it to the end, or write `{name}` for one segment";
    /// [`Pattern::build`](super::Pattern::build) got fewer values than there are captures.
    MissingValue: "no value for a capture", "give one value for each";
    /// [`Pattern::build`](super::Pattern::build) got more values than there are captures.
    SurplusValue: "more values than captures", "give one value for each";
    /// A value, or a segment of a value, is empty.
    EmptyValue: "empty value or segment", "segments of a key are never empty; leave out the surplus ':'";
    /// A value for one segment contains a `:`.
    SeparatorInValue: "value with a ':'", "encode it, or write `{name..}` as the last segment of the pattern";
    /// The regular expression of a capture does not match its value.
    ValueMismatch: "value that the regular expression does not match", "correct the value or the pattern";
}

/// The error of a pattern that a [`Router`](super::Router) refuses: another pattern is equally specific, and both match some
/// key.
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
    /// Returns the pattern in the router.
    pub fn existing(&self) -> &Pattern {
        &self.existing
    }

    /// Returns the refused pattern.
    pub fn rejected(&self) -> &Pattern {
        &self.rejected
    }

    /// Returns a key that both patterns match. `None` if the regular expressions are too complex to be compared, so that a
    /// common key is possible but not certain.
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
                 distinguish them by a literal, or by simpler expressions",
            ),
        }
    }
}

impl Error for PatternConflict {}
