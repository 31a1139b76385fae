//! A listener's life: start, run, stop.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::Core;
use super::hearing::Hearing;
use super::housekeeper::Housekeeper;
use super::sweeper::Sweeper;
use super::touches::touches;
use crate::attach::Attachment;
use crate::calls::Waits;
use crate::claim::Claimer;
use crate::complaint::Complaint;
use crate::dispatch::{Starter, keep_leases};
use crate::error::{Error, ErrorKind, Result};
use crate::id::Lane;
use crate::settle::Settler;
use crate::stop::{Stop, Stopped};
use crate::store::Hint;
use crate::store::foreign::{Ears, Watched};
use crate::store::keys::Partition;

/// How long settling and handing back may take at the end, with the server away.
const FAREWELL: Duration = Duration::from_secs(5);
/// How long forgetting what the claimers claimed last may take.
const CLOSING: Duration = Duration::from_secs(1);
/// Whoever turns eviction on while we run is told so within this time.
const SETTINGS: Duration = Duration::from_secs(60);

/// Listens until `shutdown`.
pub(super) async fn run(core: &Arc<Core>, grace: Duration, shutdown: impl Future<Output = ()>) -> Result<()> {
    tokio::pin!(shutdown);
    tokio::select! {
        registered = prepare(core) => registered?,
        () = &mut shutdown => return Ok(()),
    }
    let starter = Starter::new(core.store.virtual_time())
        .map_err(|error| Error::new(ErrorKind::Invalid, format!("cannot start a thread: {error}")))?;
    let roles = Roles::start(core, &starter);
    info!(topics = ?core.topics, "listening");
    shutdown.await;
    roles.stop(core, grace, &starter).await;
    Ok(())
}

/// Agrees with Redis on every topic, and looks at its settings.
async fn prepare(core: &Core) -> Result<()> {
    register(core).await?;
    if let Err(error) = core.store.check_settings(core.manage_notifications).await {
        warn!(%error, "the server's settings were not checked");
    }
    Ok(())
}

/// Until it is dropped. Flags are added at the start only: who clears them
/// later means it.
async fn keep_an_eye_on_settings(core: Arc<Core>) {
    loop {
        tokio::time::sleep(SETTINGS).await;
        if let Err(error) = core.store.check_settings(false).await {
            debug!(%error, "the server's settings were not checked");
        }
    }
}

/// Agrees with Redis on every topic. Waits for a server that is away; gives up
/// only where an operator is needed.
async fn register(core: &Core) -> Result<()> {
    let mut complaint = Complaint::default();
    for topic in &core.topics {
        let partitions: Vec<_> = core
            .desks
            .iter()
            .filter(|desk| Arc::ptr_eq(&desk.topic, topic))
            .map(|desk| desk.at.clone())
            .collect();
        let entry = topic.shape.entry();
        let mut waits = Waits::default();
        while let Err(error) = core.store.register(&entry, &partitions).await {
            match error.kind() {
                // The partition parks and reports; the others run.
                ErrorKind::WrongType => break,
                _ if error.is_transient() => {
                    if complaint.is_news(&error) {
                        warn!(topic = %entry.name, %error, "waiting for the server");
                    }
                    tokio::time::sleep(waits.next()).await;
                }
                _ => return Err(error),
            }
        }
    }
    Ok(())
}

/// The running tasks, in the order in which they stop.
struct Roles {
    /// Find and claim work.
    claiming: JoinSet<()>,
    /// Keep and settle what was claimed.
    keeping: JoinSet<()>,
    /// Write down what was heard of attached keys.
    clerks: JoinSet<()>,
    lanes: Vec<(usize, Lane)>,
    /// Those who may be scanning for an attached topic.
    keepers: Vec<(usize, Lane)>,
    stop: Stop,
}

impl Roles {
    fn start(core: &Arc<Core>, starter: &Starter) -> Self {
        let (stop, stopped) = Stop::new();
        let mut roles = Self {
            claiming: JoinSet::new(),
            keeping: JoinSet::new(),
            clerks: JoinSet::new(),
            lanes: Vec::new(),
            keepers: Vec::new(),
            stop,
        };
        let (touched, touching) = touches(core.store.clone());
        roles.keeping.spawn(touching);
        for (index, desk) in core.desks.iter().enumerate() {
            let mut claimer =
                Claimer::new(core.store.clone(), desk.clone(), starter.clone(), touched.clone());
            roles.lanes.push((index, claimer.lane()));
            let stopped = stopped.clone();
            roles.claiming.spawn(async move { claimer.run(stopped).await });
            roles.keeping.spawn(keep_leases(core.store.clone(), desk.clone()));
            let settler = Settler { store: core.store.clone(), desk: desk.clone() };
            roles.keeping.spawn(settler.run());
        }
        roles.start_suspects(core, starter, stopped.clone());
        let sweeper = Arc::new(Sweeper::new(core.clone()));
        let partitions: Vec<_> = core.desks.iter().map(|desk| desk.at.clone()).collect();
        let (hints, attached) = roles.listen(core, &partitions);
        let hearing = Hearing { core: core.clone(), hints, sweeper: sweeper.clone(), attached };
        // Fences matter as long as anything runs.
        roles.keeping.spawn(hearing.run());
        roles.keeping.spawn(async move { sweeper.run().await });
        roles.keeping.spawn(Housekeeper::new(core.clone()).run());
        roles.keeping.spawn(keep_an_eye_on_settings(core.clone()));
        roles
    }

    /// Opens the stream of hints; with the keys of other programs where there are attached topics.
    fn listen(
        &mut self,
        core: &Arc<Core>,
        partitions: &[Partition],
    ) -> (mpsc::Receiver<Hint>, Option<Attachment>) {
        let attached = core.topics.iter().filter(|topic| topic.shape.attach.is_some());
        let prefixes: Vec<_> =
            attached.map(|topic| topic.shape.pattern.literal_prefix().to_owned()).collect();
        let Some(foreign) = core.foreign.as_ref().filter(|_| !prefixes.is_empty()) else {
            return (core.store.hints(partitions), None);
        };
        let Ears { hints, touches } = foreign.listen(partitions, &Watched { prefixes });
        let attached = Attachment::start(core, foreign, touches, &mut self.keeping, &mut self.clerks);
        self.keepers = attached.keepers();
        (hints, Some(attached))
    }

    fn start_suspects(&mut self, core: &Arc<Core>, starter: &Starter, stopped: Stopped) {
        let lanes: Vec<_> = core.desks.iter().map(|_| Lane::random()).collect();
        self.lanes.extend(lanes.iter().copied().enumerate());
        let (core, starter) = (core.clone(), starter.clone());
        self.claiming.spawn(async move {
            core.suspects.run(&core, &lanes, &starter, stopped).await;
        });
    }

    /// Stops claiming, waits for running attempts, hands back the rest.
    async fn stop(mut self, core: &Arc<Core>, grace: Duration, starter: &Starter) {
        info!("stopping: no more claims");
        let until = Instant::now() + grace;
        self.stop.ask();
        let stopped = async { while self.claiming.join_next().await.is_some() {} };
        if tokio::time::timeout_at(until, stopped).await.is_err() {
            self.claiming.abort_all();
        }
        hand_back_unstarted(core, starter);
        let idle = async {
            for desk in &core.desks {
                desk.flights.emptied().await;
            }
        };
        if tokio::time::timeout_at(until, idle).await.is_err() {
            hand_back_running(core);
        }
        let settled = async {
            for desk in &core.desks {
                desk.outbox.empty().await;
            }
        };
        if tokio::time::timeout(FAREWELL, settled).await.is_err() {
            warn!("the server does not answer: what is unsettled runs again when its leases end");
        }
        let lanes =
            self.lanes.iter().map(|(index, lane)| core.store.close_lane(&core.desks[*index].at, *lane));
        // Those that stay open are tidied in a day.
        let _ = tokio::time::timeout(CLOSING, join_all(lanes)).await;
        self.keeping.shutdown().await;
        // What was heard is written down; with the last who could add to it, the clerks end.
        let written = async { while self.clerks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(FAREWELL, written).await;
        if let Some(foreign) = &core.foreign {
            let left = self.keepers.iter().map(|(index, lane)| foreign.leave(&core.desks[*index].at, *lane));
            let _ = tokio::time::timeout(CLOSING, join_all(left)).await;
        }
        info!("stopped");
    }
}

fn hand_back_unstarted(core: &Core, starter: &Starter) {
    let jobs = starter.close();
    for job in &jobs {
        job.desk.outbox.release([job.held.clone()]);
    }
    if !jobs.is_empty() {
        info!(count = jobs.len(), topics = core.topics.len(), "handing back what has not begun");
    }
}

fn hand_back_running(core: &Core) {
    for desk in &core.desks {
        let running = desk.flights.surrender();
        if running.is_empty() {
            continue;
        }
        warn!(topic = %desk.topic.shape.name, count = running.len(), "handing back what did not end in time");
        desk.outbox.release(running);
    }
}
