//! What a command is answered.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;

/// An answer. Connections in RESP2 see the kinds that only RESP3 has as those that stand for them there.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RedisReply {
    /// Nothing.
    Nil,
    /// A whole number.
    Int(i64),
    /// A word such as `OK`.
    Status(Cow<'static, str>),
    /// Bytes.
    Bulk(Bytes),
    /// A sequence.
    Array(Vec<RedisReply>),
    /// Pairs; in RESP2 a flat sequence.
    Map(Vec<(RedisReply, RedisReply)>),
    /// Members without an order; in RESP2 a sequence.
    Set(Vec<RedisReply>),
    /// A message that answers no command, or confirms a subscription; in RESP2 a sequence.
    Push(Vec<RedisReply>),
    /// A float; in RESP2 bytes.
    Double(f64),
    /// True or false; in RESP2 1 or 0.
    Boolean(bool),
    /// Text for people; in RESP2 bytes.
    Verbatim(Bytes),
    /// An error, with its code: `WRONGTYPE Operation against …`.
    Error(String),
}

impl RedisReply {
    /// `OK`.
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

    /// 1 or 0.
    pub(crate) fn flag(flag: bool) -> Self {
        Self::Int(i64::from(flag))
    }

    /// Whether this is an error.
    #[must_use]
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }
}

impl fmt::Display for RedisReply {
    /// As `redis-cli` shows it, in one line.
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

/// An error on its way to become a [`Reply::Error`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ErrorReply(pub(crate) Cow<'static, str>);

/// What a command's function returns.
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
