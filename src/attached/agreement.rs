//! One policy for all listeners of a topic that start: that of the highest revision, whoever brought it.
//!
//! Else whoever is first to note or to enrol a key would decide for listeners that ask for something else.

use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;

use crate::connection::retry;
use crate::error::{Error, ErrorKind, Result};
use crate::log::{debug, error, warn};
use crate::policy::{Policy, TopicPolicy};
use crate::runtime::{RunningTopic, Runtime};
use crate::wire::StandingPolicy;

/// How often a listener that runs says its policy again: so it stands for those that start, if the database was emptied.
const EVERY: Duration = Duration::from_secs(60);

/// At the start of a listener, of each of its attached topics.
///
/// # Errors
/// When a topic's policy contradicts the one that stands, or cannot be read.
pub(crate) async fn agree(runtime: &Runtime) -> Result<()> {
    let topics = runtime.attached_topics().map(|topic| agree_on(runtime, topic));
    try_join_all(topics).await.map(drop)
}

async fn agree_on(runtime: &Runtime, topic: &RunningTopic) -> Result<()> {
    let heals = |error: &Error, _| error.is_transient();
    let other = match retry(None, |_| false, heals, |_| other_policy(runtime, topic)).await {
        // The partition parks and reports.
        Err((error, _)) if error.kind() == ErrorKind::WrongType => return Ok(()),
        asked => asked.map_err(|(error, _)| error)?,
    };
    let Some(other) = other else { return Ok(()) };
    let own = topic.own_policy();
    let (revision, stands, differs) = (own.revision, other.revision, other.differs);
    if stands == revision {
        return Err(contradiction(topic, stands, &differs));
    }
    warn!(
        ?topic,
        revision,
        stands,
        differs,
        "the topic's policy in Redis is of a higher revision: this listener follows it"
    );
    topic.follow(Policy { revision: stands, topic: other.policy, ..own.clone() });
    Ok(())
}

/// Compares for as long as a listener runs. A change of policy is a restart, so none is followed here.
pub(super) async fn keep_comparing(runtime: Arc<Runtime>) {
    loop {
        tokio::time::sleep(EVERY).await;
        for topic in runtime.attached_topics() {
            match other_policy(&runtime, topic).await {
                Ok(other) => other.iter().for_each(|other| other.tell(topic)),
                Err(error) if !error.is_transient() => warn!(
                    ?topic, %error,
                    "the topic's policy in Redis is not followed: this listener goes on as before"
                ),
                Err(error) => debug!(%error, "the topic's policy is asked for again"),
            }
        }
    }
}

/// A policy that stands, and is not the one that a listener goes by.
struct Other {
    revision: u32,
    policy: TopicPolicy,
    differs: String,
}

/// Says which policy a listener goes by. Returns what stands then, if that is another.
async fn other_policy(runtime: &Runtime, topic: &RunningTopic) -> Result<Option<Other>> {
    let (first, own) = (&runtime.partitions_of(topic)[0], topic.policy());
    let stands = first.store.agree_on_policy(&first.names, own.revision, &own.topic.text()).await?;
    let StandingPolicy { revision, text } = stands;
    let policy = TopicPolicy::read(&text).map_err(|error| unreadable(topic, revision, &error))?;
    let differs = own.topic.differences(&policy);
    Ok((!differs.is_empty()).then_some(Other { revision, policy, differs }))
}

impl Other {
    fn tell(&self, topic: &RunningTopic) {
        let Self { revision: stands, differs, .. } = self;
        let revision = topic.policy().revision;
        if revision < *stands {
            warn!(
                ?topic,
                revision,
                stands,
                differs,
                "the topic's policy in Redis is of a higher revision: this listener keeps its own until it is started again"
            );
        } else {
            error!(
                ?topic,
                revision,
                stands,
                differs,
                "another policy of the same revision stands in Redis: this listener keeps its own, and would not start again"
            );
        }
    }
}

fn contradiction(topic: &RunningTopic, revision: u32, differs: &str) -> Error {
    let name = &topic.config.name;
    let message = format!(
        "attached topic {name}: its policy of revision {revision} is another one in Redis: {differs}; let both programs \
         say the same, or give the one that is to hold for all a higher Attached::revision"
    );
    Error::new(ErrorKind::Conflict, message)
}

fn unreadable(topic: &RunningTopic, revision: u32, error: &Error) -> Error {
    let (name, own) = (&topic.config.name, topic.own_policy().revision);
    let message = format!(
        "attached topic {name}: its policy in Redis is of revision {revision}, this program's of {own}, and {error}; \
         a newer program has written it: upgrade this one, or give its policy a higher Attached::revision"
    );
    Error::new(error.kind(), message)
}
