//! An occurrence as JSON: the body of a webhook, the member of a list, the entry of a stream.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keylapse_console::text::escape;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::occurrence::{Occurrence, Value};

/// How a topic's values stand in its messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Form {
    /// JSON as it was written, other text as a string, other bytes in base64.
    #[default]
    Json,
    /// A string, or base64 where it is no text.
    Text,
    /// Base64 alone.
    Base64,
}

/// As Standard Webhooks 1.0 has it: a type, when it was, and what.
#[derive(Debug, Serialize)]
struct Message<'a> {
    r#type: &'a str,
    timestamp: String,
    data: Data<'a>,
}

#[derive(Debug, Serialize)]
struct Data<'a> {
    topic: &'a str,
    id: &'a str,
    key: String,
    captures: &'a BTreeMap<String, String>,
    attempt: u32,
    deadline_ms: u64,
    #[serde(flatten)]
    shown: &'a Shown<'a>,
}

/// A value as the receiver reads it.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    value_is: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fields_base64: Option<BTreeMap<String, String>>,
    /// As text of JSON. It is put in behind all else: a serializer would leave out white space around it.
    #[serde(skip)]
    value: Cow<'a, [u8]>,
}

/// What the receiver reads.
pub(crate) fn json(topic: &str, form: Form, of: &Occurrence) -> Vec<u8> {
    let shown = Shown::new(form, &of.value);
    let mut message = to_json(&Message {
        r#type: "timer.lapsed",
        timestamp: jiff::Timestamp::from_millisecond(i64::try_from(of.deadline_ms).unwrap_or(i64::MAX))
            .map_or_else(|_| String::new(), |at| at.to_string()),
        data: Data {
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

impl<'a> Shown<'a> {
    fn new(form: Form, value: &'a Value) -> Self {
        let base64 = |value_is, bytes| Self {
            value_base64: Some(STANDARD.encode(bytes)),
            ..Self::of(value_is, b"null".into())
        };
        match value {
            Value::Unknown => Self::of("unknown", b"null".into()),
            Value::Dump(bytes) => base64("dump", bytes),
            Value::Fields(fields) => match fields.text().filter(|_| form != Form::Base64) {
                Some(text) => Self::of("fields", to_json(&text).into()),
                None => Self { fields_base64: Some(fields.base64()), ..Self::of("fields", b"null".into()) },
            },
            Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(_) if form == Form::Json && is_json(bytes) => Self::of("json", bytes[..].into()),
                Ok(text) if form != Form::Base64 => Self::of("text", to_json(&text).into()),
                _ => base64("base64", bytes),
            },
        }
    }

    fn of(value_is: &'static str, value: Cow<'a, [u8]>) -> Self {
        Self { value_is, value_base64: None, fields_base64: None, value }
    }
}

/// By the grammar of RFC 8259 alone: numbers of any length, any depth. It is read without recursion, and none of it is kept.
fn is_json(bytes: &[u8]) -> bool {
    serde_json::from_slice::<&RawValue>(bytes).is_ok()
}

fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("maps with text keys are JSON")
}

#[cfg(test)]
mod tests;
