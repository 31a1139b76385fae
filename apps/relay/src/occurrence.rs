//! What has come due, as every delivery is told of it.

#[cfg(unix)]
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use keylapse::attach::KeptValue;
use keylapse::{Expired, Lapse};
use keylapse_console::text::escape;

/// One attempt, of a timer or of a key that has expired.
#[derive(Clone, Debug)]
pub(crate) struct Occurrence {
    /// The same for all attempts, replays included.
    pub(crate) id: String,
    pub(crate) key: Bytes,
    pub(crate) captures: BTreeMap<String, String>,
    pub(crate) attempt: u32,
    pub(crate) deadline_ms: u64,
    pub(crate) value: Value,
}

/// What was armed, or the value that the key had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Unknown,
    Bytes(Bytes),
    /// What DUMP says of a key that was no string.
    Dump(Bytes),
    /// Of a hash of which fields are kept.
    Fields(Fields),
}

/// Names and values, of any bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fields(BTreeMap<Bytes, Bytes>);

impl Occurrence {
    pub(crate) fn of_timer(lapse: Lapse<Bytes>) -> Self {
        let about = Self::about(&lapse);
        Self { value: Value::Bytes(lapse.into_payload()), ..about }
    }

    pub(crate) fn of_key(lapse: &Lapse<Expired<Bytes>>) -> Self {
        let value = match lapse.payload().captured() {
            KeptValue::Captured(value) => Value::Bytes(value.clone()),
            KeptValue::Dumped(value) => Value::Dump(value.clone()),
            KeptValue::Fields(fields) => Value::Fields(Fields(fields.clone())),
            _ => Value::Unknown,
        };
        Self { value, ..Self::about(lapse) }
    }

    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        let (id, key) = ("0123456789abcdef".to_owned(), Bytes::from_static(b"order:1"));
        let (captures, value) = (BTreeMap::new(), Value::Unknown);
        Self { id, key, captures, attempt: 1, deadline_ms: 1_790_000_000_000, value }
    }

    fn about<T>(lapse: &Lapse<T>) -> Self {
        let captures = lapse.captures().into_iter().flat_map(|captures| captures.iter());
        // No two look alike: what is no text is written as it is in the key.
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).map_or_else(|_| escape(bytes), str::to_owned);
        let since = lapse.deadline().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            id: lapse.id(),
            key: Bytes::copy_from_slice(lapse.key()),
            captures: captures.map(|(name, value)| (name.to_owned(), text(value))).collect(),
            attempt: lapse.attempt(),
            deadline_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            value: Value::Unknown,
        }
    }
}

impl Value {
    /// What a program reads: the bytes, or the fields as JSON where those are what was kept.
    #[cfg(unix)]
    pub(crate) fn input(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Unknown => Cow::from(&[][..]),
            Self::Bytes(bytes) | Self::Dump(bytes) => Cow::from(&bytes[..]),
            Self::Fields(fields) => match fields.text() {
                Some(text) => serde_json::to_vec(&text),
                None => serde_json::to_vec(&fields.base64()),
            }
            .expect("maps with text keys are JSON")
            .into(),
        }
    }
}

impl Fields {
    /// None where one of them is no text.
    pub(crate) fn text(&self) -> Option<BTreeMap<&str, &str>> {
        self.0.iter().map(text_of).collect()
    }

    /// Those that are text.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(text_of)
    }

    pub(crate) fn base64(&self) -> BTreeMap<String, String> {
        self.0.iter().map(|(name, value)| (STANDARD.encode(name), STANDARD.encode(value))).collect()
    }

    #[cfg(test)]
    pub(crate) fn for_tests(fields: &[(&[u8], &[u8])]) -> Self {
        let bytes = |text: &[u8]| Bytes::copy_from_slice(text);
        Self(fields.iter().map(|(name, value)| (bytes(name), bytes(value))).collect())
    }
}

fn text_of<'a>((name, value): (&'a Bytes, &'a Bytes)) -> Option<(&'a str, &'a str)> {
    Some((std::str::from_utf8(name).ok()?, std::str::from_utf8(value).ok()?))
}
