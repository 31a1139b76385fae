//! How a topic's payload becomes bytes and back.

mod fields;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, ErrorKind, Result};
use crate::escape::text_of;

/// Reads the names and values of a hash.
type FromFields<T> = fn(&[(Bytes, Bytes)]) -> Result<T>;

/// Functions: chosen once, when the topic is made.
pub(crate) struct Codec<T> {
    pub(crate) encode: fn(&T) -> Result<Bytes>,
    pub(crate) decode: fn(Bytes) -> Result<T>,
    /// From the fields of a hash, where the payload can be more than bytes.
    pub(crate) fields: Option<FromFields<T>>,
}

impl<T> Clone for Codec<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Codec<T> {}

impl<T: Serialize + DeserializeOwned> Codec<T> {
    pub(crate) const JSON: Self =
        Self { encode: to_json, decode: from_json, fields: Some(fields::from_fields) };
}

impl Codec<Bytes> {
    pub(crate) const RAW: Self = Self { encode: |raw| Ok(raw.clone()), decode: Ok, fields: None };
}

fn to_json<T: Serialize>(value: &T) -> Result<Bytes> {
    serde_json::to_vec(value).map(Bytes::from).map_err(|error| {
        Error::new(ErrorKind::Payload, format!("the payload cannot be written as JSON: {}", text_of(error)))
    })
}

/// The message names the place and the kind of mistake, never the payload: it
/// ends up in dead letters and logs.
#[allow(clippy::needless_pass_by_value)] // the shape of every decoder
fn from_json<T: DeserializeOwned>(bytes: Bytes) -> Result<T> {
    serde_json::from_slice(&bytes).map_err(|error| {
        let what = match error.classify() {
            serde_json::error::Category::Syntax => "is not JSON",
            serde_json::error::Category::Eof => "ends in the middle of a JSON value",
            serde_json::error::Category::Data => "is JSON of another shape",
            serde_json::error::Category::Io => "cannot be read",
        };
        let (line, column) = (error.line(), error.column());
        Error::new(
            ErrorKind::Payload,
            format!("the payload of {} bytes {what} (line {line}, column {column})", bytes.len()),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_round_trip() {
        let codec = Codec::<Vec<u64>>::JSON;
        let bytes = (codec.encode)(&vec![1, u64::MAX]).unwrap();
        assert_eq!((codec.decode)(bytes).unwrap(), [1, u64::MAX]);
    }

    #[test]
    fn errors_do_not_repeat_the_payload() {
        for bad in ["hunter2", "\"hunter2\"", "{\"hunter2\":", "\u{feff}1", ""] {
            let error = (Codec::<u64>::JSON.decode)(Bytes::from_static(bad.as_bytes())).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Payload);
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn what_only_looks_like_a_payload_is_refused() {
        #[derive(Debug, serde::Deserialize, Serialize)]
        struct Notice {
            url: String,
            amount: u64,
        }
        let bad: [&[u8]; 9] = [
            b"\x82\xa3url\xa1u\xa6amount\x01",                  // MessagePack
            b"\xef\xbb\xbf{\"url\":\"u\",\"amount\":1}",        // a byte order mark
            b"{\"url\":\"\\ud800\",\"amount\":1}",              // half a surrogate pair
            b"{\"url\":\"\xff\",\"amount\":1}",                 // not UTF-8
            b"{\"url\":\"u\",\"url\":\"u\",\"amount\":1}",      // one key twice
            b"{\"url\":\"u\",\"amount\":18446744073709551616}", // one more than fits
            b"{\"url\":\"u\",\"amount\":1.0}",
            b"{\"url\":\"u\",\"amount\":NaN}",
            b"{\"url\":\"u\",\"amount\":1",
        ];
        for bytes in bad {
            let decoded = (Codec::<Notice>::JSON.decode)(Bytes::from_static(bytes));
            let shown = bytes.escape_ascii();
            assert_eq!(
                decoded.map(|notice| notice.amount).map_err(|e| e.kind()),
                Err(ErrorKind::Payload),
                "{shown}"
            );
        }
    }

    #[test]
    fn nesting_deep_enough_to_overflow_a_stack_is_an_error() {
        let deep = vec![b'['; 100_000];
        assert!((Codec::<serde_json::Value>::JSON.decode)(deep.into()).is_err());
    }
}
