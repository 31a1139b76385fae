//! Which topic and which key are meant.

use keylapse_console::{Action, Console, Filter, KnownTopic, text};

use crate::args::Targets;
use crate::commands::bulk::Work;
use crate::exit::{Exit, Failed};
use crate::output::{Output, moment};

/// The bytes of a key that was written as it is shown.
pub(super) fn key(said: &str) -> Result<Vec<u8>, Failed> {
    Ok(text::unescape(said)?)
}

/// The topic of a key: the one that is named, or the only one whose pattern matches.
pub(super) async fn topic_of(
    console: &Console,
    key: &[u8],
    named: Option<&str>,
) -> Result<KnownTopic, Failed> {
    if let Some(name) = named {
        return Ok(console.topic(name).await?);
    }
    let mut topics = console.topics_of(key).await?;
    match topics.len() {
        1 => Ok(topics.remove(0)),
        0 => Err(no_topic_of(console, key).await?),
        _ => {
            let names: Vec<_> = topics.iter().map(KnownTopic::name).collect();
            let names = names.join(", ");
            Err(Failed::Usage(format!("several topics have such keys: say which by --topic: {names}")))
        }
    }
}

/// Why no topic has such a key.
pub(super) async fn no_topic_of(console: &Console, key: &[u8]) -> Result<Failed, Failed> {
    if console.topics().await?.is_empty() {
        return Ok(Failed::no_topics(console.namespace()));
    }
    Ok(Failed::Findings(format!(
        "no registered topic has a pattern that matches {}: `keylapse topics` lists them",
        text::escape(key)
    )))
}

impl Targets {
    /// Does it to the one timer that is meant, or to many.
    pub(super) async fn act(
        &self,
        console: &Console,
        action: Action,
        out: &mut Output,
    ) -> Result<Exit, Failed> {
        if let Some(name) = &self.within {
            let filter = Filter::parse(&self.what)?;
            let topic = console.topic(name).await?;
            let work = Work { topic: &topic, action, state: self.state, filter, after: self.after.clone() };
            return super::bulk::run(&work, &self.bulk, out).await;
        }
        let [said] = &self.what[..] else {
            let advice = "say one key; or --in TOPIC, and conditions such as key:order:*";
            return Err(Failed::Usage(advice.to_owned()));
        };
        let key = key(said)?;
        let topic = topic_of(console, &key, self.topic.as_deref()).await?;
        let mut done = topic.act(action, &key, None).await?;
        if let (Action::Reschedule(_), Some(at)) = (action, done.deadline_ms) {
            done.says = format!("due at {}", moment(at)).into();
        }
        out.did(done)
    }
}
