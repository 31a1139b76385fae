//! Finds the topic and the key of a command.

use keylapse_console::{Action, Console, Filter, TopicHandle, text};

use crate::args::TargetArgs;
use crate::commands::bulk::BulkTask;
use crate::exit::{CliError, Exit};
use crate::output::{Output, moment};

/// Returns the bytes of a key that is written as it is printed.
pub(super) fn key(said: &str) -> Result<Vec<u8>, CliError> {
    Ok(text::unescape(said)?)
}

/// Returns the topic of a key: the named one, or the only one whose pattern matches.
pub(super) async fn topic_of(
    console: &Console,
    key: &[u8],
    named: Option<&str>,
) -> Result<TopicHandle, CliError> {
    if let Some(name) = named {
        return Ok(console.topic(name).await?);
    }
    let mut topics = console.topics_of(key).await?;
    match topics.len() {
        1 => Ok(topics.remove(0)),
        0 => Err(no_topic_of(console, key).await?),
        _ => {
            let names: Vec<_> = topics.iter().map(TopicHandle::name).collect();
            let names = names.join(", ");
            Err(CliError::Usage(format!("several topics match this key: choose one with --topic: {names}")))
        }
    }
}

/// Returns the error for a key that matches no topic.
pub(super) async fn no_topic_of(console: &Console, key: &[u8]) -> Result<CliError, CliError> {
    if console.topics().await?.is_empty() {
        return Ok(CliError::no_topics(console.namespace()));
    }
    Ok(CliError::Findings(format!(
        "no registered topic has a pattern that matches {}: `keylapse topics` lists them",
        text::escape(key)
    )))
}

impl TargetArgs {
    /// Applies the action to one timer, or to many.
    pub(super) async fn act(
        &self,
        console: &Console,
        action: Action,
        out: &mut Output,
    ) -> Result<Exit, CliError> {
        if let Some(name) = &self.within {
            let filter = Filter::parse(&self.what)?;
            let topic = console.topic(name).await?;
            let work =
                BulkTask { topic: &topic, action, state: self.state, filter, after: self.after.clone() };
            return super::bulk::run(&work, &self.bulk, out).await;
        }
        let [said] = &self.what[..] else {
            let advice = "write one key; or --in TOPIC, and conditions such as key:order:*";
            return Err(CliError::Usage(advice.to_owned()));
        };
        let key = key(said)?;
        let topic = topic_of(console, &key, self.topic.as_deref()).await?;
        let mut done = topic.act(action, &key, None).await?;
        if let (Action::Reschedule(_), Some(at)) = (action, done.deadline_ms) {
            done.message = format!("due at {}", moment(at)).into();
        }
        out.print_action_result(done)
    }
}
