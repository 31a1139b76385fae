//! Replies to commands.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;

/// A reply. On connections in RESP2, kinds of RESP3 are converted.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RedisReply {
    /// No value.
    Nil,
    /// An integer.
    Int(i64),
    /// A status such as `OK`.
    Status(Cow<'static, str>),
    /// A binary string.
    Bulk(Bytes),
    /// A sequence.
    Array(Vec<RedisReply>),
    /// Pairs. In RESP2 a flat sequence.
    Map(Vec<(RedisReply, RedisReply)>),
    /// Members without order. In RESP2 a sequence.
    Set(Vec<RedisReply>),
    /// A message, or the confirmation of a subscription. In RESP2 a sequence.
    Push(Vec<RedisReply>),
    /// A float. In RESP2 a binary string.
    Double(f64),
    /// True or false. In RESP2 1 or 0.
    Boolean(bool),
    /// Text for people. In RESP2 a binary string.
    Verbatim(Bytes),
    /// An error, with its code: `WRONGTYPE Operation against …`.
    Error(String),
}

impl RedisReply {
    pub(crate) const OK: Self = Self::Status(Cow::Borrowed("OK"));

    pub(crate) fn bulk(bytes: impl AsRef<[u8]>) -> Self {
        Self::Bulk(Bytes::copy_from_slice(bytes.as_ref()))
    }

    pub(crate) fn bytes_or_nil(bytes: Option<Bytes>) -> Self {
        bytes.map_or(Self::Nil, Self::Bulk)
    }

    pub(crate) fn count(count: usize) -> Self {
        Self::Int(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// Returns 1 or 0.
    pub(crate) fn flag(flag: bool) -> Self {
        Self::Int(i64::from(flag))
    }

    /// Returns whether the reply is an error.
    #[must_use]
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }
}

impl fmt::Display for RedisReply {
    /// Writes the reply in one line, similar to `redis-cli`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => f.write_str("(nil)"),
            Self::Int(number) => write!(f, "{number}"),
            Self::Status(word) => f.write_str(word),
            Self::Bulk(bytes) | Self::Verbatim(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Self::Array(items) | Self::Set(items) | Self::Push(items) => list(f, items),
            Self::Map(pairs) => {
                f.write_str("{")?;
                for (at, (key, value)) in pairs.iter().enumerate() {
                    write!(f, "{}{key}: {value}", if at > 0 { ", " } else { "" })?;
                }
                f.write_str("}")
            }
            Self::Double(number) => write!(f, "{number}"),
            Self::Boolean(flag) => write!(f, "{flag}"),
            Self::Error(text) => write!(f, "({text})"),
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, items: &[RedisReply]) -> fmt::Result {
    f.write_str("[")?;
    for (at, item) in items.iter().enumerate() {
        write!(f, "{}{item}", if at > 0 { ", " } else { "" })?;
    }
    f.write_str("]")
}

/// The text of a [`RedisReply::Error`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ErrorReply(pub(crate) Cow<'static, str>);

/// The result of a command's function.
pub(crate) type CommandResult = Result<RedisReply, ErrorReply>;

impl ErrorReply {
    pub(crate) const fn of(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }

    pub(crate) const WRONG_TYPE: Self =
        Self::of("WRONGTYPE Operation against a key holding the wrong kind of value");
    pub(crate) const SYNTAX: Self = Self::of("ERR syntax error");
    pub(crate) const NOT_AN_INTEGER: Self = Self::of("ERR value is not an integer or out of range");
    pub(crate) const NOT_A_FLOAT: Self = Self::of("ERR value is not a valid float");
    pub(crate) const NOT_A_RANGE: Self = Self::of("ERR min or max is not a float");
    pub(crate) const NO_SUCH_KEY: Self = Self::of("ERR no such key");
    pub(crate) const OUT_OF_MEMORY: Self =
        Self::of("OOM command not allowed when used memory > 'maxmemory'.");
}

impl From<String> for ErrorReply {
    fn from(text: String) -> Self {
        Self(Cow::Owned(text))
    }
}

impl From<ErrorReply> for RedisReply {
    fn from(refusal: ErrorReply) -> Self {
        Self::Error(refusal.0.into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_shown_in_one_line() {
        let pair = (RedisReply::bulk("a\n"), RedisReply::Double(0.5));
        let reply = RedisReply::Array(vec![
            RedisReply::Nil,
            RedisReply::Int(1),
            RedisReply::Map(vec![pair]),
            RedisReply::OK,
        ]);
        assert_eq!(reply.to_string(), "[(nil), 1, {\"a\\n\": 0.5}, OK]");
        assert_eq!(RedisReply::from(ErrorReply::SYNTAX).to_string(), "(ERR syntax error)");
    }
}
