//! Reads what scripts answer.

use bytes::Bytes;
use keylapse_connection::Value;

use crate::error::{Error, ErrorKind, Result};
use crate::id::ArmingId;
use crate::time::ServerTime;

/// The elements of an array answer, taken one by one.
pub struct Reply {
    script: &'static str,
    /// The server's time, where the answer began with it.
    pub(super) stamp: ServerTime,
    rest: std::vec::IntoIter<Value>,
}

impl Reply {
    pub fn new(script: &'static str, value: Value) -> Result<Self> {
        let Value::Array(items) = value else { return Err(unexpected(script)) };
        Ok(Self { script, stamp: ServerTime::default(), rest: items.into_iter() })
    }

    /// Takes the server's time from the front.
    pub fn stamped(mut self) -> Result<Self> {
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

    /// A code: which of these it is, counted from 0.
    pub(super) fn one_of<T: Copy>(&mut self, all: &[T]) -> Result<T> {
        let place = usize::try_from(self.int()?).unwrap_or(usize::MAX);
        all.get(place).copied().ok_or_else(|| self.unexpected())
    }

    /// So many codes, and no more.
    pub(super) fn codes<T: Copy>(&mut self, count: usize, all: &[T]) -> Result<Vec<T>> {
        let codes = self.each(|reply| reply.one_of(all))?;
        if codes.len() == count { Ok(codes) } else { Err(self.unexpected()) }
    }

    /// The next element, if it can be read so.
    fn next<T>(&mut self, read: impl FnOnce(Value) -> Option<T>) -> Result<T> {
        self.rest.next().and_then(read).ok_or_else(|| self.unexpected())
    }

    /// A whole number, also one written as a string, as scores are: of those the whole part.
    pub(super) fn int(&mut self) -> Result<u64> {
        self.maybe_int()?.ok_or_else(|| self.unexpected())
    }

    /// A whole number; none where it is nil, or text that is no number.
    pub(super) fn maybe_int(&mut self) -> Result<Option<u64>> {
        self.next(|value| match value {
            Value::Nil => Some(None),
            Value::Int(n) => u64::try_from(n).ok().map(Some),
            Value::BulkString(text) => Some(number(&text)),
            _ => None,
        })
    }

    /// A whole number that may be negative.
    pub(super) fn signed(&mut self) -> Result<i64> {
        self.next(|value| if let Value::Int(n) = value { Some(n) } else { None })
    }

    /// A number: scores are text from scripts and in RESP2, and floats in RESP3.
    pub(super) fn float(&mut self) -> Result<f64> {
        self.maybe_float()?.ok_or_else(|| self.unexpected())
    }

    /// The same; none where it is nil.
    pub(super) fn maybe_float(&mut self) -> Result<Option<f64>> {
        self.next(|value| match value {
            Value::Nil => Some(None),
            Value::Double(score) => Some(Some(score)),
            #[allow(clippy::cast_precision_loss)]
            Value::Int(whole) => Some(Some(whole as f64)),
            Value::BulkString(text) => std::str::from_utf8(&text).ok()?.parse().ok().map(Some),
            _ => None,
        })
    }

    pub(super) fn bytes(&mut self) -> Result<Bytes> {
        self.maybe_bytes()?.ok_or_else(|| self.unexpected())
    }

    pub(super) fn maybe_bytes(&mut self) -> Result<Option<Bytes>> {
        self.next(|value| match value {
            Value::Nil => Some(None),
            Value::BulkString(bytes) => Some(Some(bytes.into())),
            Value::SimpleString(text) => Some(Some(text.into())),
            _ => None,
        })
    }

    /// Text; none where it is empty.
    pub fn maybe_text(&mut self) -> Result<Option<String>> {
        let bytes = self.bytes()?;
        Ok((!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned()))
    }

    pub(super) fn arming(&mut self) -> Result<Option<ArmingId>> {
        Ok(ArmingId::from_bytes(&self.bytes()?))
    }

    pub(super) fn list(&mut self) -> Result<Self> {
        let script = self.script;
        self.next(|value| Self::new(script, value).ok())
    }

    /// The score of the first member, where there is one: RESP3 says it as a pair with a float, RESP2 as two texts.
    pub(super) fn first_score(&mut self) -> Result<Option<u64>> {
        let mut members = self.list()?.rest;
        let score = match members.next() {
            None => return Ok(None),
            Some(Value::Array(pair)) => pair.into_iter().nth(1),
            Some(_) => members.next(),
        };
        match score {
            Some(Value::Double(score)) => Ok(number(score.to_string().as_bytes())),
            Some(Value::BulkString(score)) => Ok(number(&score)),
            _ => Err(self.unexpected()),
        }
    }

    pub(super) fn unexpected(&self) -> Error {
        unexpected(self.script)
    }
}

/// The whole part of a number in text, as scores are.
pub(super) fn number(text: &[u8]) -> Option<u64> {
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

pub(super) fn unexpected(script: &'static str) -> Error {
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
