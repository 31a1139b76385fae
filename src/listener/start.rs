//! Registers a listener's topics in Redis at its start, and warns about settings and unserved topics.

use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;

use crate::attached::topic;
use crate::connection::retry;
use crate::error::{Error, ErrorKind, Result};
use crate::escape::Escaped;
use crate::log::{LogThrottle, debug, warn};
use crate::pattern::Pattern;
use crate::runtime::{RunningTopic, Runtime};
use crate::wire::TopicEntry;

/// The interval of checks of the server's settings. A check warns, for example, if eviction is turned on.
const SETTINGS_CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// The maximum number of registered topics that are checked for unserved ones.
const MAX_CHECKED_TOPICS: usize = 10_000;

/// Registers every topic in Redis, agrees with other listeners on the policies of attached topics, and warns about settings
/// and unserved topics.
pub(super) async fn prepare(runtime: &Runtime, manage_notifications: bool) -> Result<()> {
    register(runtime).await?;
    topic::agree(runtime).await?;
    if let Err(error) = runtime.client.store.check_settings(manage_notifications).await {
        warn!(%error, "cannot check the server's settings");
    }
    warn_of_unserved(runtime).await;
    Ok(())
}

/// Checks the server's settings until it is dropped. It adds no notification flags: an operator who clears them later
/// does so on purpose.
pub(super) async fn watch_settings(runtime: Arc<Runtime>) {
    loop {
        tokio::time::sleep(SETTINGS_CHECK_INTERVAL).await;
        if let Err(error) = runtime.client.store.check_settings(false).await {
            debug!(%error, "cannot check the server's settings");
        }
    }
}

/// Registers every topic in Redis, and waits for an unavailable server. Fails only if an operator has to act.
async fn register(runtime: &Runtime) -> Result<()> {
    let throttle = LogThrottle::default();
    let topics: Vec<_> =
        runtime.topics.iter().map(|topic| register_topic(runtime, topic, &throttle)).collect();
    try_join_all(topics).await.map(drop)
}

async fn register_topic(runtime: &Runtime, topic: &RunningTopic, throttle: &LogThrottle) -> Result<()> {
    let name = &topic.config.name;
    runtime.client.store.serve(name);
    let should_retry = |error: &Error, _| {
        if error.is_transient() && throttle.should_log(error) {
            warn!(topic = %name, %error, "waiting for the server");
        }
        error.is_transient()
    };
    match retry(None, |_| false, should_retry, async |_| runtime.register(topic).await).await {
        // A name of the wrong type parks its partition at the first claim; the other partitions run.
        Err((error, _)) if error.kind() != ErrorKind::WrongType => {
            Err(runtime.client.store.topology().explained(error).await)
        }
        _ => Ok(()),
    }
}

/// Warns about each topic that has timers, is served by no listener, and whose keys may match a topic of this listener.
/// Mostly, a pattern of the program was changed, and the topic's name with it. Timers under the old name then never fire.
pub(super) async fn warn_of_unserved(runtime: &Runtime) {
    if let Err(error) = find_unserved(runtime).await {
        debug!(%error, "cannot check whether topics with keys like ours are served");
    }
}

async fn find_unserved(runtime: &Runtime) -> Result<()> {
    let (store, namespace) = (&runtime.client.store, &*runtime.client.namespace);
    for entry in store.registered(namespace, MAX_CHECKED_TOPICS).await? {
        let Some(ours) = our_overlapping_pattern(runtime, &entry) else { continue };
        let partitions = entry.all_partitions(namespace);
        let timers = store.count_timers(&partitions).await?;
        if timers > 0 && !store.is_served(&partitions).await? {
            warn!(
                topic = %entry.name,
                pattern = %Escaped(entry.pattern.as_bytes()),
                %ours,
                timers,
                "a topic with keys like ours holds timers, and no listener seems to serve it: if a pattern \
                 of this program was changed, keep the topic's name with Topic::named, or serve both until the old one is empty"
            );
        }
    }
    Ok(())
}

/// Returns the pattern of this listener that keys of `entry` may match, unless `entry` is one of its own topics.
fn our_overlapping_pattern<'a>(runtime: &'a Runtime, entry: &TopicEntry) -> Option<&'a Pattern> {
    let is_ours = runtime.topics.iter().any(|topic| topic.config.name == entry.name);
    let theirs = Pattern::new(&entry.pattern).ok().filter(|_| !is_ours)?;
    let mut patterns = runtime.topics.iter().map(|topic| &topic.config.pattern);
    patterns.find(|pattern| pattern.may_overlap(&theirs))
}
