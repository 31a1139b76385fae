//! The kinds of error, and what is said about each.

/// What is wrong with a pattern, or with values for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PatternErrorKind {
    /// There is nothing in it.
    Empty,
    /// It has more than 1024 bytes.
    TooLong,
    /// It has more than 32 segments.
    TooManySegments,
    /// It contains a newline, a NUL or another control character.
    ControlCharacter,
    /// It starts or ends with `:`, or has two in a row.
    EmptySegment,
    /// A segment in the notation of another pattern language: `*`, `**`, `?`, `<name>`.
    ForeignCapture,
    /// A segment is partly a capture and partly something else.
    CaptureBesideText,
    /// A `{` without its `}`.
    UnclosedBrace,
    /// A `}` without its `{`.
    UnopenedBrace,
    /// A capture without a name.
    EmptyName,
    /// A capture with a name that is not `[A-Za-z_][A-Za-z0-9_]*`.
    InvalidName,
    /// Two captures with one name.
    DuplicateName,
    /// The regular expression has a syntax error.
    InvalidRegex,
    /// The regular expression takes too much memory when compiled.
    RegexTooLarge,
    /// The regular expression matches no segment at all.
    RegexMatchesNothing,
    /// A `{name..}` that is not the last segment.
    RestNotLast,
    /// [`Pattern::build`](super::Pattern::build) got fewer values than there are captures.
    MissingValue,
    /// [`Pattern::build`](super::Pattern::build) got more values than there are captures.
    SurplusValue,
    /// A value is empty, or a segment of it is.
    EmptyValue,
    /// A value for one segment contains a `:`.
    SeparatorInValue,
    /// A value that the capture's regular expression does not match.
    ValueMismatch,
}

impl PatternErrorKind {
    /// What is wrong, and what to write instead.
    pub(super) fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::Empty => ("it is empty", "write at least one segment, such as `orders:{id}`"),
            Self::TooLong => ("it is longer than 1024 bytes", "shorten its literals and regular expressions"),
            Self::TooManySegments => {
                ("it has more than 32 segments", "capture the remaining ones together by `{rest..}`")
            }
            Self::ControlCharacter => (
                "control character",
                "remove it, or match it by an escape in a regular expression, \
                 such as `{name:\\x00}`",
            ),
            Self::EmptySegment => (
                "a segment is empty",
                "remove the surplus ':', or write `{name}` for what stands there in a key",
            ),
            Self::ForeignCapture => (
                "not a capture",
                "write `{name}` for one segment, `{name..}` for all that remain, \
                 `{name:regex}` to match the characters themselves",
            ),
            Self::CaptureBesideText => (
                "a capture must be a whole segment",
                "write a ':' between, or one capture with a regular expression such as \
                 `{id:order-[0-9]+}`",
            ),
            Self::UnclosedBrace => (
                "a '{' is never closed",
                "write '}' at the end of the capture, `{{` for a literal brace, \
                 `\\{` for one in a regular expression",
            ),
            Self::UnopenedBrace => ("a '}' was never opened", "write `}}` for a literal brace"),
            Self::EmptyName => ("a capture has no name", "name it, such as `{id}` or `{id:[0-9]+}`"),
            Self::InvalidName => {
                ("not a name", "use ASCII letters, digits and '_', beginning with a letter or '_'")
            }
            Self::DuplicateName => ("two captures have one name", "rename one of them"),
            Self::InvalidRegex => (
                "invalid regular expression",
                r"correct it; braces in it must balance, or be written `\{` and `\}`",
            ),
            Self::RegexTooLarge => (
                "the regular expression is too large when compiled",
                r"lower its repetitions, or write an ASCII class such as `[A-Za-z0-9_]` for `\w`",
            ),
            Self::RegexMatchesNothing => (
                "the regular expression matches no segment",
                "it sees one segment, which is never empty and never contains ':'; \
                 write `{a}:{b}` for two segments, `{name..}` for all that remain",
            ),
            Self::RestNotLast => (
                "nothing can follow a capture of all remaining segments",
                "move it to the end, or write `{name}` for one segment",
            ),
            Self::MissingValue => ("no value for a capture", "give one value for each"),
            Self::SurplusValue => ("more values than captures", "give one value for each"),
            Self::EmptyValue => {
                ("empty value or segment", "segments of a key are never empty; leave out the surplus ':'")
            }
            Self::SeparatorInValue => {
                ("value with a ':'", "encode it, or write `{name..}` as the last segment of the pattern")
            }
            Self::ValueMismatch => {
                ("value that the regular expression does not match", "correct the value or the pattern")
            }
        }
    }
}
