//! An occurrence as JSON: the body of a webhook, the member of a list, what a program could be told.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keylapse::console::text::escape;
use serde::Serialize;
use serde_json::Value;

use crate::occurrence::Occurrence;

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
    value: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
}

/// What the receiver reads.
pub(crate) fn json(topic: &str, of: &Occurrence) -> Vec<u8> {
    let (value, value_base64) = value(of);
    let message = Message {
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
            value,
            value_base64,
        },
    };
    serde_json::to_vec(&message).expect("maps with text keys are JSON")
}

/// JSON as it is, other text as a string, other bytes apart.
fn value(of: &Occurrence) -> (Value, Option<String>) {
    let Some(bytes) = &of.value else {
        let fields = serde_json::to_value(&of.fields).unwrap_or_default();
        return (if of.fields.is_empty() { Value::Null } else { fields }, None);
    };
    if let Ok(json) = serde_json::from_slice(bytes) {
        return (json, None);
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.into(), None),
        Err(_) => (Value::Null, Some(STANDARD.encode(bytes))),
    }
}
