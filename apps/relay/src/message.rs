//! An occurrence as JSON: the body of a webhook, the member of a list, the entry of a stream.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keylapse_console::text::escape;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::occurrence::{Occurrence, OccurrenceValue};

/// How the messages of a topic encode values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Form {
    /// JSON as it was written, other UTF-8 as a string, other bytes in base64.
    #[default]
    Json,
    /// A string, or base64 if the value is not UTF-8.
    Text,
    /// Always base64.
    Base64,
}

/// A message as Standard Webhooks 1.0 defines it.
#[derive(Debug, Serialize)]
struct RelayMessage<'a> {
    r#type: &'a str,
    timestamp: String,
    data: RelayMessageData<'a>,
}

#[derive(Debug, Serialize)]
struct RelayMessageData<'a> {
    topic: &'a str,
    id: &'a str,
    key: String,
    captures: &'a BTreeMap<String, String>,
    attempt: u32,
    deadline_ms: u64,
    #[serde(flatten)]
    shown: &'a EncodedValue<'a>,
}

/// A value in its encoding.
#[derive(Debug, Serialize)]
struct EncodedValue<'a> {
    value_format: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fields_base64: Option<BTreeMap<String, String>>,
    /// The value as JSON. It is appended to the serialized message, as a serializer would drop white space around it.
    #[serde(skip)]
    value: Cow<'a, [u8]>,
}

/// Returns the message that the receiver reads.
pub(crate) fn json(topic: &str, form: Form, of: &Occurrence) -> Vec<u8> {
    let shown = EncodedValue::new(form, &of.value);
    let mut message = to_json(&RelayMessage {
        r#type: "timer.lapsed",
        timestamp: jiff::Timestamp::from_millisecond(i64::try_from(of.deadline_ms).unwrap_or(i64::MAX))
            .map_or_else(|_| String::new(), |at| at.to_string()),
        data: RelayMessageData {
            topic,
            id: &of.id,
            key: escape(&of.key).to_string(),
            captures: &of.captures,
            attempt: of.attempt,
            deadline_ms: of.deadline_ms,
            shown: &shown,
        },
    });
    message.truncate(message.len() - "}}".len());
    message.extend_from_slice(b",\"value\":");
    message.extend_from_slice(&shown.value);
    message.extend_from_slice(b"}}");
    message
}

impl<'a> EncodedValue<'a> {
    fn new(form: Form, value: &'a OccurrenceValue) -> Self {
        let base64 = |value_format, bytes| Self {
            value_base64: Some(STANDARD.encode(bytes)),
            ..Self::of(value_format, b"null".into())
        };
        match value {
            OccurrenceValue::Unknown => Self::of("unknown", b"null".into()),
            OccurrenceValue::Dump(bytes) => base64("dump", bytes),
            OccurrenceValue::Fields(fields) => match fields.text().filter(|_| form != Form::Base64) {
                Some(text) => Self::of("fields", to_json(&text).into()),
                None => Self { fields_base64: Some(fields.base64()), ..Self::of("fields", b"null".into()) },
            },
            OccurrenceValue::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(_) if form == Form::Json && is_json(bytes) => Self::of("json", bytes[..].into()),
                Ok(text) if form != Form::Base64 => Self::of("text", to_json(&text).into()),
                _ => base64("base64", bytes),
            },
        }
    }

    fn of(value_format: &'static str, value: Cow<'a, [u8]>) -> Self {
        Self { value_format, value_base64: None, fields_base64: None, value }
    }
}

/// Returns whether these bytes are JSON by RFC 8259, with numbers of any length and any depth. The check neither recurses
/// nor keeps anything.
fn is_json(bytes: &[u8]) -> bool {
    serde_json::from_slice::<&RawValue>(bytes).is_ok()
}

fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("maps with text keys are JSON")
}

#[cfg(test)]
mod tests;
