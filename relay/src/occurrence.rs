//! What has come due, as every delivery is told of it.

#[cfg(unix)]
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use keylapse::{Expired, KeptValue, Lapse};

/// One attempt, of a timer or of a key that has expired.
#[derive(Clone, Debug)]
pub(crate) struct Occurrence {
    /// The same for all attempts, replays included.
    pub(crate) id: String,
    pub(crate) key: Bytes,
    pub(crate) captures: BTreeMap<String, String>,
    pub(crate) attempt: u32,
    pub(crate) deadline_ms: u64,
    /// What was armed, or the value that the key had; none where that is not known.
    pub(crate) value: Option<Bytes>,
    /// Of a hash of which fields are kept.
    pub(crate) fields: BTreeMap<String, String>,
}

impl Occurrence {
    pub(crate) fn of_timer(lapse: Lapse<Bytes>) -> Self {
        let about = Self::about(&lapse);
        Self { value: Some(lapse.into_payload()), ..about }
    }

    pub(crate) fn of_key(lapse: &Lapse<Expired<Bytes>>) -> Self {
        let about = Self::about(lapse);
        match lapse.payload().captured() {
            KeptValue::Captured(value) | KeptValue::Dumped(value) => {
                Self { value: Some(value.clone()), ..about }
            }
            KeptValue::Fields(fields) => {
                let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
                let fields = fields.iter().map(|(name, value)| (text(name), text(value))).collect();
                Self { fields, ..about }
            }
            _ => about,
        }
    }

    /// What a program reads: the value, or the fields as JSON where those are what was kept.
    #[cfg(unix)]
    pub(crate) fn payload(&self) -> Cow<'_, [u8]> {
        match &self.value {
            Some(value) => Cow::from(&value[..]),
            None if self.fields.is_empty() => Cow::from(&[][..]),
            None => serde_json::to_vec(&self.fields).expect("maps with text keys are JSON").into(),
        }
    }

    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        let (value, fields, captures) = Default::default();
        let (id, key) = ("0123456789abcdef".to_owned(), Bytes::from_static(b"order:1"));
        Self { id, key, captures, attempt: 1, deadline_ms: 1_790_000_000_000, value, fields }
    }

    fn about<T>(lapse: &Lapse<T>) -> Self {
        let captures = lapse.captures().into_iter().flat_map(|captures| captures.iter());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let since = lapse.deadline().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            id: lapse.id(),
            key: Bytes::copy_from_slice(lapse.key()),
            captures: captures.map(|(name, value)| (name.to_owned(), text(value))).collect(),
            attempt: lapse.attempt(),
            deadline_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            value: None,
            fields: BTreeMap::new(),
        }
    }
}
