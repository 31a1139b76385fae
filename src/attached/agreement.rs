//! One policy for all listeners of a topic: that of the highest revision, whoever brought it.
//!
//! Else whoever is first to note or to enrol a key would decide for listeners that ask for something else.

use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use tokio::time::Instant;

use crate::connection::retry;
use crate::error::{Error, ErrorKind, Result};
use crate::log::{debug, error, info, warn};
use crate::log_throttle::LogThrottle;
use crate::policy::Policy;
use crate::runtime::{Partition, RunningTopic, Runtime};
use crate::wire::{StandingPolicy, TopicPolicy};

/// How soon a listener that runs notices what another brings.
const EVERY: Duration = Duration::from_secs(2);

/// At the start of a listener, of each of its attached topics.
///
/// # Errors
/// When a topic's policy contradicts the one that stands, or cannot be read.
pub(crate) async fn agree(runtime: &Runtime) -> Result<()> {
    let topics = runtime.attached_topics().map(|topic| agree_on(runtime, topic));
    try_join_all(topics).await.map(drop)
}

async fn agree_on(runtime: &Runtime, topic: &RunningTopic) -> Result<()> {
    let first = &runtime.partitions_of(topic)[0];
    let heals = |error: &Error, _| error.is_transient();
    let stands = match retry(None, |_| false, heals, |_| ask(first)).await {
        Ok(stands) => stands,
        // The partition parks and reports; and is asked again later.
        Err((error, _)) if error.kind() == ErrorKind::WrongType => return Ok(()),
        Err((error, _)) => return Err(error),
    };
    let Some(news) = Followed::of(topic, &stands)? else { return Ok(()) };
    if stands.revision == topic.own_policy().revision {
        return Err(Error::new(ErrorKind::Conflict, contradiction(topic, &stands, &news.differs)));
    }
    news.follow(topic, stands.revision);
    Ok(())
}

/// Says what this listener's policy is; what the topic's is now.
async fn ask(first: &Partition) -> Result<StandingPolicy> {
    let own = first.topic.own_policy();
    first.store.agree_on_policy(&first.names, own.revision, &own.topic.text()).await
}

/// Keeps a listener to the policy of one topic.
pub(super) struct Agreement {
    pub(super) runtime: Arc<Runtime>,
    /// The topic's first.
    pub(super) partition: Arc<Partition>,
}

impl Agreement {
    /// Until it is dropped.
    pub(super) async fn run(self) {
        let (mut rounds, trouble) = (self.runtime.client.rounds(), LogThrottle::default());
        loop {
            rounds.next(Instant::now() + EVERY, EVERY).await;
            rounds.begin();
            match self.tick().await {
                Ok(()) => _ = trouble.is_over(),
                Err(error) if !error.is_transient() && trouble.should_log(&error) => warn!(
                    topic = ?self.partition.topic, %error,
                    "the topic's policy in Redis is not followed: this listener goes on as before"
                ),
                Err(error) => debug!(%error, "the topic's policy is asked for again"),
            }
        }
    }

    /// Asks once.
    async fn tick(&self) -> Result<()> {
        let topic = &self.partition.topic;
        let stands = ask(&self.partition).await?;
        match Followed::of(topic, &stands)? {
            Some(news) => news.follow(topic, stands.revision),
            None if topic.follow(topic.own_policy().clone()) => {
                info!(?topic, "the topic's policy in Redis is this listener's own again");
            }
            None => {}
        }
        Ok(())
    }
}

/// Another policy than this listener's own.
struct Followed {
    policy: Policy,
    differs: String,
}

impl Followed {
    /// None where the listener's own is the same.
    fn of(topic: &RunningTopic, stands: &StandingPolicy) -> Result<Option<Self>> {
        let own = topic.own_policy();
        let read = TopicPolicy::read(&stands.text).map_err(|error| unreadable(topic, stands, &error))?;
        let differs = own.topic.differences(&read);
        Ok((!differs.is_empty()).then(|| Self { policy: Policy { topic: read, ..own.clone() }, differs }))
    }

    /// Says so, where that is news.
    fn follow(self, topic: &RunningTopic, stands: u32) {
        if !topic.follow(self.policy) {
            return;
        }
        let (differs, revision) = (self.differs, topic.own_policy().revision);
        if revision < stands {
            warn!(
                ?topic,
                revision,
                stands,
                differs,
                "the topic's policy in Redis is of a higher revision: this listener follows it"
            );
        } else {
            error!(
                ?topic,
                revision,
                stands,
                differs,
                "another policy of the same revision stands in Redis: this listener follows it, and would not start again"
            );
        }
    }
}

fn contradiction(topic: &RunningTopic, stands: &StandingPolicy, differs: &str) -> String {
    let (name, revision) = (&topic.config.name, stands.revision);
    format!(
        "attached topic {name}: its policy of revision {revision} is another one in Redis: {differs}; let both programs \
         say the same, or give the one that is to hold for all a higher Attached::revision"
    )
}

fn unreadable(topic: &RunningTopic, stands: &StandingPolicy, error: &Error) -> Error {
    let (name, revision, own) = (&topic.config.name, stands.revision, topic.own_policy().revision);
    let message = format!(
        "attached topic {name}: its policy in Redis is of revision {revision}, this program's of {own}, and {error}; \
         a newer program has written it: upgrade this one, or give its policy a higher Attached::revision"
    );
    Error::new(error.kind(), message)
}
