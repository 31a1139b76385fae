//! A listener's life: start, run, stop.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::attached::AttachedRoles;
use crate::connection::retry;
use crate::error::{Error, ErrorKind, Result};
use crate::events::{self, Event, EventStream};
use crate::id::SlotId;
use crate::log_throttle::LogThrottle;
use crate::roles::claimer::Claimer;
use crate::roles::event_loop::EventLoop;
use crate::roles::expirer::touches;
use crate::roles::lease_keeper::keep_leases;
use crate::roles::repair::repair;
use crate::roles::settler::Settler;
use crate::roles::starter::Starter;
use crate::roles::sweeper::Sweeper;
use crate::runtime::{Groups, Partition, RunningTopic, Runtime};
use crate::wire::End;

/// How long settling and handing back may take at the end, with the server away.
const FAREWELL: Duration = Duration::from_secs(5);
/// How long forgetting what the claimers claimed last may take.
const CLOSING: Duration = Duration::from_secs(1);
/// Whoever turns eviction on while we run is told so within this time.
const SETTINGS: Duration = Duration::from_secs(60);

/// Listens until `shutdown`.
pub(super) async fn run(
    runtime: &Arc<Runtime>,
    manage_notifications: bool,
    grace: Duration,
    shutdown: impl Future,
) -> Result<()> {
    tokio::pin!(shutdown);
    tokio::select! {
        registered = prepare(runtime, manage_notifications) => registered?,
        _ = &mut shutdown => return Ok(()),
    }
    let starter = Starter::new(runtime.client.virtual_time())
        .map_err(|error| Error::new(ErrorKind::Invalid, format!("cannot start a thread: {error}")))?;
    let roles = Roles::start(runtime, &starter);
    info!(topics = ?runtime.topics, "listening");
    shutdown.await;
    roles.stop(runtime, grace, &starter).await;
    Ok(())
}

/// Agrees with Redis on every topic, and looks at its settings.
async fn prepare(runtime: &Runtime, manage_notifications: bool) -> Result<()> {
    register(runtime).await?;
    if let Err(error) = runtime.client.store.check_settings(manage_notifications).await {
        warn!(%error, "the server's settings were not checked");
    }
    Ok(())
}

/// Until it is dropped. Flags are added at the start only: who clears them
/// later means it.
async fn keep_an_eye_on_settings(runtime: Arc<Runtime>) {
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
    for topic in &runtime.topics {
        let names = runtime.partitions_of(topic).iter().map(|partition| partition.names.clone());
        let partitions: Vec<_> = names.collect();
        let entry = topic.config.entry();
        let heals = |error: &Error, _| {
            if error.is_transient() && throttle.should_log(error) {
                warn!(topic = %entry.name, %error, "waiting for the server");
            }
            error.is_transient()
        };
        let register = |_| runtime.client.store.register(&entry, &partitions);
        match retry(None, |_| false, heals, register).await {
            // The partition parks and reports; the others run.
            Err((error, _)) if error.kind() != ErrorKind::WrongType => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The running tasks, in the order in which they stop.
#[derive(Default)]
struct Roles {
    /// Find and claim work.
    claiming: JoinSet<()>,
    /// Keep and settle what was claimed.
    keeping: JoinSet<()>,
    /// Write down what was heard of attached keys.
    writers: JoinSet<()>,
    slots: Vec<(Arc<Partition>, SlotId)>,
    /// Those who may be scanning for an attached topic.
    scanners: Vec<(Arc<Partition>, SlotId)>,
    /// Dropped to ask the claimers to stop.
    stop: watch::Sender<()>,
}

impl Roles {
    fn start(runtime: &Arc<Runtime>, starter: &Starter) -> Self {
        let mut roles = Self::default();
        let (touched, touching) = touches(runtime.client.store.clone());
        roles.keeping.spawn(touching);
        let groups = Groups::new(runtime.partitions.first().map_or(1, |one| one.permits.places()));
        for partition in &runtime.partitions {
            let claimer = || Claimer::new(partition.clone(), starter.clone(), touched.clone());
            for claimer in [claimer(), claimer().of_quarantine(groups.clone())] {
                roles.slots.push((partition.clone(), claimer.slot));
                roles.claiming.spawn(claimer.run(roles.stop.subscribe()));
            }
            roles.keeping.spawn(keep_leases(partition.clone()));
            roles.keeping.spawn(Settler { partition: partition.clone() }.run());
        }
        let sweeper = Sweeper { runtime: runtime.clone(), calm: runtime.calm.subscribe() };
        let (events, attached) = roles.listen(runtime);
        let event_loop = EventLoop { runtime: runtime.clone(), events, attached };
        // Fences matter as long as anything runs.
        roles.keeping.spawn(event_loop.run());
        roles.keeping.spawn(sweeper.run());
        roles.keeping.spawn(repair(runtime.clone()));
        roles.keeping.spawn(keep_an_eye_on_settings(runtime.clone()));
        roles
    }

    /// Opens the stream of events; with the keys of other programs where there are attached topics.
    fn listen(&mut self, runtime: &Arc<Runtime>) -> (mpsc::Receiver<Event>, Option<AttachedRoles>) {
        let partitions: Vec<_> = runtime.partitions.iter().map(|partition| partition.names.clone()).collect();
        let prefix = |topic: &Arc<RunningTopic>| topic.config.pattern.literal_prefix().to_owned();
        let prefixes: Vec<_> = runtime.attached_topics().map(prefix).collect();
        let client = &runtime.client;
        let stream =
            events::open(client.store.address(), &client.namespace, &partitions, &prefixes, client.rounds());
        #[cfg(feature = "testing")]
        let stream = client.testing.between(stream);
        let EventStream { events, touches } = stream;
        if prefixes.is_empty() {
            return (events, None);
        }
        let attached = AttachedRoles::start(runtime, touches, &mut self.keeping, &mut self.writers);
        self.scanners.clone_from(&attached.scanners);
        (events, Some(attached))
    }

    /// Stops claiming, waits for running attempts, hands back the rest.
    async fn stop(mut self, runtime: &Arc<Runtime>, grace: Duration, starter: &Starter) {
        info!("stopping: no more claims");
        let until = Instant::now() + grace;
        drop(self.stop);
        let stopped = async { while self.claiming.join_next().await.is_some() {} };
        if tokio::time::timeout_at(until, stopped).await.is_err() {
            self.claiming.abort_all();
        }
        hand_back_unstarted(runtime, starter);
        let idle = join_all(runtime.partitions.iter().map(|partition| partition.leases.emptied()));
        if tokio::time::timeout_at(until, idle).await.is_err() {
            hand_back_running(runtime);
        }
        let settled = join_all(runtime.partitions.iter().map(|partition| partition.outbox.empty()));
        if tokio::time::timeout(FAREWELL, settled).await.is_err() {
            warn!("the server does not answer: what is unsettled runs again when its leases end");
        }
        let slots = self.slots.iter().map(|(at, slot)| at.store.close_slot(&at.names, *slot));
        // Those that stay open are tidied in a day.
        let _ = tokio::time::timeout(CLOSING, join_all(slots)).await;
        self.keeping.shutdown().await;
        // What was heard is written down; with the last who could add to it, the writers end.
        let written = async { while self.writers.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(FAREWELL, written).await;
        let left = self.scanners.iter().map(|(at, slot)| at.store.hold_scanner(&at.names, *slot, 0, false));
        let _ = tokio::time::timeout(CLOSING, join_all(left)).await;
        info!("stopped");
    }
}

fn hand_back_unstarted(runtime: &Runtime, starter: &Starter) {
    let jobs = starter.close();
    for job in &jobs {
        job.partition.end(job.held.clone(), End::Release);
    }
    if !jobs.is_empty() {
        let topics = runtime.topics.len();
        info!(count = jobs.len(), topics, "handing back timers whose attempts have not started");
    }
}

fn hand_back_running(runtime: &Runtime) {
    for partition in &runtime.partitions {
        let running = partition.leases.surrender();
        if running.is_empty() {
            continue;
        }
        warn!(topic = %partition.topic.config.name, count = running.len(), "handing back attempts that did not end in time");
        running.into_iter().for_each(|held| partition.end(held, End::Release));
    }
}
