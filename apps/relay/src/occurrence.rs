//! A timer or an expired key, as each delivery receives it.

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

/// One attempt to deliver a timer or an expired key.
#[derive(Clone, Debug)]
pub(crate) struct Occurrence {
    /// The ID of the arming, which all attempts and replays share.
    pub(crate) id: String,
    pub(crate) key: Bytes,
    pub(crate) captures: BTreeMap<String, String>,
    pub(crate) attempt: u32,
    pub(crate) deadline_ms: u64,
    pub(crate) value: OccurrenceValue,
}

/// The payload of a timer, or the last value of an expired key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OccurrenceValue {
    Unknown,
    Bytes(Bytes),
    /// The output of `DUMP`, for a key that was not a string.
    Dump(Bytes),
    /// The kept fields of a hash.
    Fields(KeptFields),
}

/// Names and values of fields, which may be any bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptFields(BTreeMap<Bytes, Bytes>);

impl Occurrence {
    pub(crate) fn of_timer(lapse: Lapse<Bytes>) -> Self {
        let about = Self::about(&lapse);
        Self { value: OccurrenceValue::Bytes(lapse.into_payload()), ..about }
    }

    pub(crate) fn of_key(lapse: &Lapse<Expired<Bytes>>) -> Self {
        let value = match lapse.payload().value_at_last_read() {
            KeptValue::Kept(value) => OccurrenceValue::Bytes(value.clone()),
            KeptValue::Dumped(value) => OccurrenceValue::Dump(value.clone()),
            KeptValue::Fields(fields) => OccurrenceValue::Fields(KeptFields(fields.clone())),
            _ => OccurrenceValue::Unknown,
        };
        Self { value, ..Self::about(lapse) }
    }

    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        let (id, key) = ("0123456789abcdef".to_owned(), Bytes::from_static(b"order:1"));
        let (captures, value) = (BTreeMap::new(), OccurrenceValue::Unknown);
        Self { id, key, captures, attempt: 1, deadline_ms: 1_790_000_000_000, value }
    }

    fn about<T>(lapse: &Lapse<T>) -> Self {
        let captures = lapse.captures().into_iter().flat_map(|captures| captures.iter());
        // Captures that are not UTF-8 are escaped as in the key: replacement characters would make them look alike.
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).map_or_else(|_| escape(bytes), str::to_owned);
        let since = lapse.deadline().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            id: lapse.id(),
            key: Bytes::copy_from_slice(lapse.key()),
            captures: captures.map(|(name, value)| (name.to_owned(), text(value))).collect(),
            attempt: lapse.attempt(),
            deadline_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            value: OccurrenceValue::Unknown,
        }
    }
}

impl OccurrenceValue {
    /// Returns the standard input of a program: the value, or the kept fields as JSON.
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

impl KeptFields {
    /// Returns the fields, or `None` if one of them is not UTF-8.
    pub(crate) fn text(&self) -> Option<BTreeMap<&str, &str>> {
        self.0.iter().map(text_of).collect()
    }

    /// Returns the fields that are UTF-8.
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
