//! Says every five seconds how this listener is, where others find it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::error::Result;
use crate::log::{debug, warn};
use crate::log_throttle::LogThrottle;
use crate::runtime::{EventMode, NodeState, RunningTopic, Runtime};
use crate::time::{ms_ceil, unix_ms};
use crate::wire::{ListenerReport, NodeReport, TopicReport, listeners};

/// Between two reports; whoever reads them takes three that are missing for a listener that is gone.
const EVERY: Duration = Duration::from_secs(5);

/// Reports of one listener.
pub(crate) struct Reporter {
    runtime: Arc<Runtime>,
    since: SystemTime,
    /// Where the last look for reports of the dead has ended.
    looked: u64,
    throttle: LogThrottle,
}

impl Reporter {
    pub(crate) fn new(runtime: Arc<Runtime>) -> Self {
        Self { runtime, since: SystemTime::now(), looked: 0, throttle: LogThrottle::default() }
    }

    /// Until it is dropped.
    pub(crate) async fn run(mut self) {
        let mut rounds = self.runtime.client.rounds();
        loop {
            rounds.begin();
            match self.tick().await {
                Ok(()) => _ = self.throttle.is_over(),
                Err(error) if self.throttle.should_log(&error) => {
                    warn!(%error, "others cannot see that this listener is there; everything else works");
                }
                Err(error) => debug!(%error, "no report"),
            }
            rounds.next(Instant::now() + EVERY, EVERY).await;
        }
    }

    /// Reports once.
    pub(crate) async fn tick(&mut self) -> Result<()> {
        let Runtime { client, id, .. } = &*self.runtime;
        let report = report(&self.runtime, self.since);
        self.looked =
            client.store.report(&listeners(&client.namespace), id, Some(&report), self.looked).await?;
        Ok(())
    }
}

/// Takes the report away: it is not there any more.
pub(crate) async fn leave(runtime: &Runtime) {
    let Runtime { client, id, .. } = runtime;
    if let Err(error) = client.store.report(&listeners(&client.namespace), id, None, 0).await {
        debug!(%error, "the report stays until it is old");
    }
}

fn report(runtime: &Runtime, since: SystemTime) -> ListenerReport {
    // Not the permits that are taken: a claim takes some for what it may find, and mostly gives them back.
    let running = runtime.topics.iter().map(|topic| running(runtime, topic)).sum();
    let (_, limit) = runtime.permits.usage();
    let topics = runtime.topics.iter().map(|topic| (topic.config.name.clone(), of_topic(runtime, topic)));
    ListenerReport {
        id: runtime.id.clone(),
        host: host(),
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        since_ms: unix_ms(since),
        running,
        limit,
        handlers_stalled_ms: runtime.stall.lasts().map(ms_ceil),
        nodes: runtime.nodes.all().iter().map(|node| of_node(node)).collect(),
        topics: topics.collect(),
        at_ms: 0,
    }
}

fn of_node(node: &NodeState) -> NodeReport {
    // Attached topics know more of it.
    let mode = match node.known().mode {
        EventMode::Starting => node.mode(),
        mode => mode,
    };
    NodeReport {
        node: node.address().to_string(),
        mode: mode.as_str().to_owned(),
        gap: node.gap().map(|gap| gap.as_str().to_owned()),
        gaps: node.gaps(),
    }
}

/// How many of a topic's timers are held: until their deadlines, while they run, and until that is settled.
fn running(runtime: &Runtime, topic: &RunningTopic) -> usize {
    runtime.partitions_of(topic).iter().map(|partition| partition.leases.count()).sum()
}

fn of_topic(runtime: &Runtime, topic: &RunningTopic) -> TopicReport {
    let (running, (_, limit)) = (running(runtime, topic), runtime.permits.usage_of(topic.index));
    let counts = topic.stats.snapshot().iter().filter(|(_, count)| *count > 0);
    let counts: BTreeMap<_, _> = counts.map(|(name, count)| (name.to_owned(), count)).collect();
    let (lateness, handler) = (topic.meter.lateness.snapshot(), topic.meter.handler.snapshot());
    TopicReport { running, limit, counts, lateness, handler }
}

#[cfg(target_os = "linux")]
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(target_os = "linux"))]
fn host() -> String {
    std::env::var("HOSTNAME").or_else(|_| std::env::var("COMPUTERNAME")).unwrap_or_default()
}
