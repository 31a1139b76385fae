//! How a command says what it did.

use keylapse_console::KnownTopic;
use serde::Serialize;

use crate::exit::{Exit, Failed};
use crate::output::Output;

/// What was done to a topic, or to one of its timers.
#[derive(Serialize)]
pub(super) struct Did<'a> {
    pub(super) topic: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
    pub(super) outcome: &'a str,
    pub(super) says: &'a str,
}

impl Did<'_> {
    pub(super) fn say(&self, out: &mut Output) -> Result<(), Failed> {
        if out.is_json() {
            return out.line("did", self);
        }
        let Self { topic, key, says, .. } = self;
        out.say(format!("{}: {says}", key.as_deref().unwrap_or(topic)))
    }
}

/// Says what was done to a topic.
pub(super) fn say_of_topic(
    topic: &KnownTopic,
    outcome: &str,
    says: &str,
    out: &mut Output,
) -> Result<Exit, Failed> {
    Did { topic: topic.name(), key: None, outcome, says }.say(out)?;
    Ok(Exit::Fine)
}
