//! Reads what scripts answer.

use bytes::Bytes;
use redis::Value;

use crate::connection::classify;
use crate::error::{Error, ErrorKind, Result};
use crate::id::ArmingId;
use crate::time::ServerTime;

/// The elements of an array answer, taken one by one.
pub(crate) struct Reply {
    script: &'static str,
    /// The server's time, where the answer began with it.
    pub(super) stamp: ServerTime,
    rest: std::vec::IntoIter<Value>,
}

impl Reply {
    pub(crate) fn new(script: &'static str, value: Value) -> Result<Self> {
        match value {
            Value::Array(items) => Ok(Self { script, stamp: ServerTime::default(), rest: items.into_iter() }),
            _ => Err(unexpected(script)),
        }
    }

    /// Takes the server's time from the front.
    pub(crate) fn stamped(mut self) -> Result<Self> {
        self.stamp = ServerTime::new(self.int()?, self.int()?);
        Ok(self)
    }

    /// Reads all that is left, one by one.
    pub(super) fn each<T>(&mut self, mut read: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut all = Vec::with_capacity(self.rest.len());
        while self.rest.len() > 0 {
            all.push(read(self)?);
        }
        Ok(all)
    }

    /// Where answers come in one array, an error can be any of them.
    fn next(&mut self) -> Result<Value> {
        let value = self.rest.next().ok_or_else(|| unexpected(self.script))?;
        value.extract_error().map_err(|error| classify(self.script, &error))
    }

    /// A whole number, also one written as a string.
    pub(super) fn int(&mut self) -> Result<u64> {
        match self.next()? {
            Value::Int(n) => u64::try_from(n).map_err(|_| unexpected(self.script)),
            Value::BulkString(text) => number(&text).ok_or_else(|| unexpected(self.script)),
            _ => Err(unexpected(self.script)),
        }
    }

    /// A whole number; none where it is an empty string.
    pub(super) fn maybe_int(&mut self) -> Result<Option<u64>> {
        match self.next()? {
            Value::Int(n) => u64::try_from(n).map(Some).map_err(|_| unexpected(self.script)),
            Value::BulkString(text) if text.is_empty() => Ok(None),
            _ => Err(unexpected(self.script)),
        }
    }

    /// A whole number that may be negative.
    pub(super) fn signed(&mut self) -> Result<i64> {
        match self.next()? {
            Value::Int(n) => Ok(n),
            _ => Err(unexpected(self.script)),
        }
    }

    pub(super) fn bytes(&mut self) -> Result<Bytes> {
        self.maybe_bytes()?.ok_or_else(|| unexpected(self.script))
    }

    pub(super) fn maybe_bytes(&mut self) -> Result<Option<Bytes>> {
        match self.next()? {
            Value::Nil => Ok(None),
            Value::BulkString(bytes) => Ok(Some(bytes.into())),
            Value::SimpleString(text) => Ok(Some(text.into())),
            _ => Err(unexpected(self.script)),
        }
    }

    /// Text; none where it is empty.
    pub(crate) fn maybe_text(&mut self) -> Result<Option<String>> {
        let bytes = self.bytes()?;
        Ok((!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// The whole milliseconds of a score; none where it is nil or empty.
    pub(super) fn maybe_score(&mut self) -> Result<Option<u64>> {
        Ok(self.maybe_bytes()?.as_deref().and_then(number))
    }

    pub(super) fn arming(&mut self) -> Result<Option<ArmingId>> {
        Ok(ArmingId::from_bytes(&self.bytes()?))
    }

    pub(super) fn list(&mut self) -> Result<Self> {
        let value = self.next()?;
        Self::new(self.script, value)
    }

    pub(super) fn unexpected(&self) -> Error {
        unexpected(self.script)
    }
}

/// The whole part of a number in text, as scores are.
fn number(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    if let Ok(whole) = text.parse() {
        return Some(whole);
    }
    let float: f64 = text.parse().ok()?;
    // A score that others have tampered with may be negative or infinite: due
    // at once, or never.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
    (!float.is_nan()).then_some(float as u64)
}

fn unexpected(script: &'static str) -> Error {
    Error::new(
        ErrorKind::Server,
        format!("{script} answered something unexpected; is another program using keylapse's names?"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_cut_to_whole_milliseconds() {
        assert_eq!(number(b"1700000000000.5009765625"), Some(1_700_000_000_000));
        assert_eq!(number(b"1.7e3"), Some(1700));
        assert_eq!(number(b"-3"), Some(0));
        assert_eq!(number(b"inf"), Some(u64::MAX));
        assert_eq!(number(b"nan"), None);
        assert_eq!(number(b""), None);
    }
}
