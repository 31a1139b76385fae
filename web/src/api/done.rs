//! What the API says of an action.

use axum::Json;
use axum::http::StatusCode;
use keylapse_console::{Became, KnownTopic, text};
use serde::Serialize;

use crate::act::Did;

/// What was done to a topic, or to something of one of its keys. The fields are those of the command line's.
#[derive(Debug, Serialize)]
pub(super) struct Done {
    topic: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    outcome: &'static str,
    says: &'static str,
    /// When it is due now, where it was moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_ms: Option<u64>,
}

/// The answer of an action upon one thing.
pub(super) type Answer = (StatusCode, Json<Done>);

pub(super) fn to_topic(topic: &KnownTopic, became: Became) -> Did<Answer> {
    answer(became, Done::of(topic, became))
}

pub(super) fn to_key(topic: &KnownTopic, key: &[u8], became: Became) -> Did<Answer> {
    to_be_due(topic, key, became, None)
}

/// To a timer, which is due at that time now.
pub(super) fn to_be_due(
    topic: &KnownTopic,
    key: &[u8],
    became: Became,
    deadline_ms: Option<u64>,
) -> Did<Answer> {
    answer(became, Done { key: Some(text::escape(key)), deadline_ms, ..Done::of(topic, became) })
}

fn answer(became: Became, done: Done) -> Did<Answer> {
    Did::one(became, (status(became), Json(done)))
}

impl Done {
    fn of(topic: &KnownTopic, Became { code, says, .. }: Became) -> Self {
        Self { topic: topic.name().to_owned(), key: None, outcome: code, says, deadline_ms: None }
    }
}

/// 404 where there was nothing, and 409 where something stood in the way.
pub(super) fn status(became: Became) -> StatusCode {
    match became {
        Became { was_done: true, .. } => StatusCode::OK,
        Became::NOT_ARMED | Became::GONE => StatusCode::NOT_FOUND,
        _ => StatusCode::CONFLICT,
    }
}
