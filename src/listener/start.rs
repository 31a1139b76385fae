//! What a listener agrees with Redis on before it listens, and what it warns of.

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

/// Whoever turns eviction on while we run is told so within this time.
const SETTINGS: Duration = Duration::from_secs(60);
/// More topics than these are not looked at.
const MOST: usize = 10_000;

/// Agrees with Redis on every topic, and looks at its settings.
pub(super) async fn prepare(runtime: &Runtime, manage_notifications: bool) -> Result<()> {
    register(runtime).await?;
    topic::agree(runtime).await?;
    if let Err(error) = runtime.client.store.check_settings(manage_notifications).await {
        warn!(%error, "the server's settings were not checked");
    }
    warn_of_unserved(runtime).await;
    Ok(())
}

/// Until it is dropped. Flags are added at the start only: who clears them
/// later means it.
pub(super) async fn keep_an_eye_on_settings(runtime: Arc<Runtime>) {
    loop {
        tokio::time::sleep(SETTINGS).await;
        if let Err(error) = runtime.client.store.check_settings(false).await {
            debug!(%error, "the server's settings were not checked");
        }
    }
}

/// Agrees with Redis on every topic. Waits for a server that is away; gives up
/// only where an operator is needed.
async fn register(runtime: &Runtime) -> Result<()> {
    let throttle = LogThrottle::default();
    let topics: Vec<_> =
        runtime.topics.iter().map(|topic| register_topic(runtime, topic, &throttle)).collect();
    try_join_all(topics).await.map(drop)
}

async fn register_topic(runtime: &Runtime, topic: &RunningTopic, throttle: &LogThrottle) -> Result<()> {
    let name = &topic.config.name;
    runtime.client.store.serve(name);
    let heals = |error: &Error, _| {
        if error.is_transient() && throttle.should_log(error) {
            warn!(topic = %name, %error, "waiting for the server");
        }
        error.is_transient()
    };
    match retry(None, |_| false, heals, async |_| runtime.register(topic).await).await {
        // The partition parks and reports; the others run.
        Err((error, _)) if error.kind() != ErrorKind::WrongType => {
            Err(runtime.client.store.topology().explained(error).await)
        }
        _ => Ok(()),
    }
}

/// Warns of each topic with keys like ours that nobody serves, once. It is mostly one of ours under the name that its
/// pattern gave it before it was changed: its timers will never fire. Says nothing where that cannot be found out.
pub(super) async fn warn_of_unserved(runtime: &Runtime) {
    if let Err(error) = look(runtime).await {
        debug!(%error, "whether topics with keys like ours are served was not found out");
    }
}

async fn look(runtime: &Runtime) -> Result<()> {
    let (store, namespace) = (&runtime.client.store, &*runtime.client.namespace);
    for entry in store.registered(namespace, MOST).await? {
        let Some(ours) = our_pattern_like(runtime, &entry) else { continue };
        let partitions = entry.all_partitions(namespace);
        let timers = store.count_timers(&partitions).await?;
        if timers > 0 && !store.is_served(&partitions).await? {
            warn!(
                topic = %entry.name,
                pattern = %Escaped(entry.pattern.as_bytes()),
                %ours,
                timers,
                "a topic with keys like ours holds timers, and no listener seems to serve it: if it was ours \
                 before its pattern changed, keep its name with Topic::named, or serve it besides until it is empty"
            );
        }
    }
    Ok(())
}

/// Of a topic that is not ours, the pattern of ours that its keys may match.
fn our_pattern_like<'a>(runtime: &'a Runtime, entry: &TopicEntry) -> Option<&'a Pattern> {
    let is_ours = runtime.topics.iter().any(|topic| topic.config.name == entry.name);
    let theirs = Pattern::new(&entry.pattern).ok().filter(|_| !is_ours)?;
    let mut patterns = runtime.topics.iter().map(|topic| &topic.config.pattern);
    patterns.find(|pattern| pattern.may_overlap(&theirs))
}
