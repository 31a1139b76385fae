//! Topics with keys like ours that nobody serves: mostly one of ours under the name that its pattern gave it
//! before it was changed.

use crate::error::Result;
use crate::escape::Escaped;
use crate::log::{debug, warn};
use crate::pattern::Pattern;
use crate::runtime::Runtime;
use crate::wire::TopicEntry;

/// More topics than these are not looked at.
const MOST: usize = 10_000;

/// Warns of each, once: its timers will never fire. Says nothing where that cannot be found out.
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
