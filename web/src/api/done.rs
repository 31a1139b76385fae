//! What the API says of an action.

use serde::Serialize;

/// What was done to a topic, or to something of one of its keys.
#[derive(Debug, Serialize)]
pub(super) struct Done {
    pub(super) topic: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
    pub(super) outcome: &'static str,
    /// When it is due now, where it was moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) deadline_ms: Option<u64>,
}
