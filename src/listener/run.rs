//! A listener's life: start, run, stop.
//!
//! Its roles run on a thread of their own, so that no handler holds them up.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::dispatcher::{Dispatch, set_default};
use tracing::subscriber::NoSubscriber;

use crate::attached::{AttachedRoles, Hearing, Peers};
use crate::connection::Server;
use crate::error::{Error, ErrorKind, Result};
use crate::escape::Escaped;
use crate::events::{Among, Decoder, EventStream, Source};
use crate::id::SlotId;
use crate::lease::PARTING;
use crate::listener::Listener;
use crate::listener::start::{keep_an_eye_on_settings, prepare};
use crate::log::{error, info, warn};
use crate::panics::{contained, message};
use crate::roles::attempt::Job;
use crate::roles::claimer::Claimer;
use crate::roles::event_loop::EventLoop;
use crate::roles::expirer::touches;
use crate::roles::leases::{guard_leases, keep_leases};
use crate::roles::node_keeper::NodeKeeper;
use crate::roles::reporter::{Reporter, leave};
use crate::roles::settler::Settler;
use crate::roles::starter::Starter;
use crate::roles::sweeper::{Sweeper, repair};
use crate::runtime::{Groups, NodeState, Partition, RunningTopic, Runtime};

/// How long settling and handing back may take at the end, with the server away.
const FAREWELL: Duration = Duration::from_secs(5);
/// How long forgetting what the claimers claimed last may take.
const CLOSING: Duration = Duration::from_secs(1);

/// Listens until `shutdown`.
pub(super) async fn run(listener: Listener, shutdown: impl Future) -> Result<()> {
    let Listener { runtime, grace, manage_notifications, handlers, subscriber } = listener;
    let _owned = Owned(runtime.clone());
    let (stop, stopped) = oneshot::channel();
    let handlers = match handlers {
        Some(handlers) => handlers,
        None => Handle::try_current().map_err(|_| without_runtime())?,
    };
    check_timers(&handlers)?;
    let virtual_time = runtime.client.virtual_time();
    let work = move || work(runtime, manage_notifications, grace, handlers, stopped);
    let work = if virtual_time { work().boxed() } else { on_own_thread(subscriber, work).boxed() };
    let (mut work, mut shutdown) = (work, pin!(shutdown));
    tokio::select! {
        ended = &mut work => return ended,
        _ = &mut shutdown => drop(stop.send(())),
    }
    work.await
}

/// However listening ends, nothing is left of it.
struct Owned(Arc<Runtime>);

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.partitions.iter().for_each(|partition| partition.leases.abandon());
    }
}

/// What the listener's thread does.
async fn work(
    runtime: Arc<Runtime>,
    manage_notifications: bool,
    grace: Duration,
    handlers: Handle,
    mut stopped: oneshot::Receiver<()>,
) -> Result<()> {
    tokio::select! {
        registered = prepare(&runtime, manage_notifications) => registered?,
        _ = &mut stopped => return Ok(()),
    }
    let mut handlers_end = end_of(&handlers);
    let starter = Starter::new(&runtime, handlers).map_err(|error| no_thread(&error))?;
    let _closed_at_last = starter.closing();
    let mut roles = Roles::start(&runtime, &starter);
    let ready = runtime.listening.begin();
    info!(topics = ?runtime.topics, "listening");
    let failed = tokio::select! {
        _ = &mut stopped => None,
        failed = roles.one_has_ended() => Some(failed),
        _ = handlers_end.join_next() => Some(without_handlers()),
    };
    drop(ready);
    if let Some(failed) = &failed {
        error!(error = %failed, "stopping");
    }
    roles.stop(&runtime, grace, &starter).await;
    failed.map_or(Ok(()), Err)
}

/// A task that only the end of this runtime ends.
fn end_of(handlers: &Handle) -> JoinSet<()> {
    let mut ends = JoinSet::new();
    ends.spawn_on(std::future::pending(), handlers);
    ends
}

/// Why a listener stops whose handlers can run no more: each attempt would cost its timer a lease.
fn without_handlers() -> Error {
    let message = "the runtime of the handlers was shut down, so the listener has stopped; keep it until `run_until` returns";
    Error::new(ErrorKind::Internal, message)
}

fn without_runtime() -> Error {
    Error::invalid(
        "a listener needs a tokio runtime for its handlers: await `run_until` on one, or name one by `handlers_on`",
    )
}

/// Refuses a runtime on which no attempt could have a timeout. tokio has no other way to ask than to make a timer, which
/// panics without them.
fn check_timers(handlers: &Handle) -> Result<()> {
    let _there = handlers.enter();
    contained(|| drop(tokio::time::sleep(Duration::ZERO))).map_err(|_| {
        Error::invalid(
            "the runtime of the handlers has no timers, which the timeout of each attempt needs: build it with \
             `enable_time()` or `enable_all()`",
        )
    })
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
    /// The partitions for whose topics this listener may scan or enrol.
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
        // Fences matter as long as anything runs.
        roles.listen(runtime);
        roles.keeping.spawn(guard_leases(runtime.clone()));
        roles.keeping.spawn(repair(runtime.clone()));
        roles.keeping.spawn(Reporter::new(runtime.clone()).run());
        roles.keeping.spawn(keep_an_eye_on_settings(runtime.clone()));
        roles
    }

    /// Hears the events of each server, and sweeps it.
    fn listen(&mut self, runtime: &Arc<Runtime>) {
        let partitions: Vec<_> = runtime.partitions.iter().map(|partition| partition.names.clone()).collect();
        let prefix = |topic: &Arc<RunningTopic>| topic.config.pattern.literal_prefix().to_owned();
        let prefixes: Vec<_> = runtime.attached_topics().map(prefix).collect();
        let client = &runtime.client;
        let db = client.store.target().access.db;
        let topology = client.store.topology();
        let decoder = Decoder::new(&client.namespace, db, &partitions, &prefixes, topology.are_many());
        let attached = runtime.attached_topics().next().map(|_| {
            let attached = AttachedRoles::start(runtime, &mut self.keeping, &mut self.writers);
            self.scanners.clone_from(&attached.scanners);
            attached
        });
        if let Some(server) = topology.only() {
            self.listen_to(runtime, server, decoder, attached.as_ref());
        } else if let Some(cluster) = topology.cluster() {
            let keeper = NodeKeeper::new(runtime.clone(), cluster.clone(), decoder, attached);
            self.keeping.spawn(keeper.run());
        }
    }

    /// The same of the only server; with the keys of other programs where there are attached topics.
    fn listen_to(
        &mut self,
        runtime: &Arc<Runtime>,
        server: &Server,
        decoder: Decoder,
        attached: Option<&AttachedRoles>,
    ) {
        let (client, node) = (&runtime.client, NodeState::only(server, runtime));
        runtime.add_node(&node);
        let (share, rounds) = (node.share.subscribe(), client.rounds());
        let prompts = attached.map(AttachedRoles::prompts).unwrap_or_default();
        let peers = attached.and_then(|_| Peers::successors(server));
        let among = if peers.is_some() { Among::Successors } else { Among::Alone };
        let source =
            Source { server: server.clone(), among, slots_move: false, decoder, share, prompts, rounds };
        let (EventStream { events, touches }, supervisor) = source.open();
        self.keeping.spawn(supervisor);
        let attached = attached.map(|attached| {
            let Hearing { ear, reader } = attached.hear(&node, peers, touches);
            self.keeping.spawn(reader);
            self.keeping.spawn(attached.scan(&node, server));
            ear
        });
        let event_loop = EventLoop::new(runtime.clone(), node.clone(), events, attached);
        self.keeping.spawn(event_loop.run());
        self.keeping.spawn(Sweeper::new(runtime.clone(), node).run());
    }

    /// None of them does, unasked: what has become of the first that did.
    async fn one_has_ended(&mut self) -> Error {
        let ended = tokio::select! {
            Some(ended) = self.claiming.join_next() => ended,
            Some(ended) = self.keeping.join_next() => ended,
            Some(ended) = self.writers.join_next() => ended,
            else => return panicked("nothing is left of it"),
        };
        match ended.map_err(tokio::task::JoinError::try_into_panic) {
            Err(Ok(panic)) => panicked(&message(panic)),
            _ => panicked("it has ended by itself"),
        }
    }

    /// Stops claiming, waits for running attempts, stops them, hands back the rest.
    async fn stop(mut self, runtime: &Arc<Runtime>, grace: Duration, starter: &Starter) {
        info!("stopping: no more claims");
        let until = Instant::now() + grace;
        drop(self.stop);
        let _ = tokio::time::timeout_at(until, all_end(&mut self.claiming)).await;
        hand_back_unstarted(runtime, starter);
        let idle = join_all(runtime.partitions.iter().map(|partition| partition.leases.emptied()));
        if tokio::time::timeout_at(until, idle).await.is_err() {
            stop_running(runtime).await;
        }
        let settled = async {
            // What a claim brings that is answered only now is handed back, too.
            all_end(&mut self.claiming).await;
            join_all(runtime.partitions.iter().map(|partition| partition.outbox.empty())).await;
        };
        if tokio::time::timeout(FAREWELL, settled).await.is_err() {
            self.claiming.abort_all();
            warn!("the server does not answer: what is unsettled runs again when its leases end");
        }
        let slots = self.slots.iter().map(|(at, slot)| at.store.close_slot(&at.names, *slot));
        // Those that stay open are tidied in a day.
        let _ = tokio::time::timeout(CLOSING, join_all(slots)).await;
        self.keeping.shutdown().await;
        let _ = tokio::time::timeout(CLOSING, leave(runtime)).await;
        // What was heard is written down; with the last who could add to it, the writers end.
        let _ = tokio::time::timeout(FAREWELL, all_end(&mut self.writers)).await;
        let left = self.scanners.iter().map(|(at, slot)| at.store.hold_scanner(&at.names, *slot, 0, false));
        let _ = tokio::time::timeout(CLOSING, join_all(left)).await;
        info!("stopped");
    }
}

async fn all_end(roles: &mut JoinSet<()>) {
    while roles.join_next().await.is_some() {}
}

fn hand_back_unstarted(runtime: &Runtime, starter: &Starter) {
    let jobs = starter.close();
    if !jobs.is_empty() {
        let topics = runtime.topics.len();
        info!(count = jobs.len(), topics, "handing back timers whose attempts have not started");
    }
    jobs.into_iter().for_each(Job::hand_back);
}

/// Each hands itself back once it has stopped: not before, or two would run at once.
async fn stop_running(runtime: &Runtime) {
    for partition in &runtime.partitions {
        let count = partition.leases.stop();
        if count > 0 {
            warn!(topic = %partition.topic.config.name, count, "stopping attempts that did not end in time");
        }
    }
    let ended = join_all(runtime.partitions.iter().map(|partition| partition.leases.ended()));
    let _ = tokio::time::timeout(PARTING, ended).await;
    for partition in &runtime.partitions {
        for held in partition.leases.give_up() {
            let (topic, key) = (&partition.topic, Escaped(&held.key));
            topic.stats.lost_leases.add(1);
            warn!(?topic, %key, "a handler blocks and cannot be stopped: others run its timer when its lease ends");
        }
    }
}

/// Runs this on a thread and a runtime of its own, to its end or until the answer is dropped. Everything that
/// it has spawned there has ended when it is answered.
async fn on_own_thread<F>(subscriber: Dispatch, work: impl FnOnce() -> F + Send + 'static) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let (alive, abandoned) = oneshot::channel::<Infallible>();
    let (answer, answered) = oneshot::channel();
    let work = move || {
        // One that is set for all threads, perhaps later, needs no help.
        let _subscriber = (!subscriber.is::<NoSubscriber>()).then(|| set_default(&subscriber));
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(|error| no_thread(&error))?;
        let ended = runtime.block_on(async {
            tokio::select! {
                biased;
                _ = abandoned => Ok(Ok(())), // nobody hears it
                ended = AssertUnwindSafe(async { work().await }).catch_unwind() => ended,
            }
        });
        drop(runtime);
        ended.unwrap_or_else(|panic| Err(panicked(&message(panic))))
    };
    let thread = thread::Builder::new().name("keylapse".into());
    thread.spawn(move || drop(answer.send(work()))).map_err(|error| no_thread(&error))?;
    let ended = answered.await;
    drop(alive);
    ended.unwrap_or_else(|_| Err(panicked("without a word")))
}

/// One of the listener's threads cannot be had.
fn no_thread(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Internal, format!("cannot start a thread of the listener: {error}"))
}

/// What becomes of a panic in a part of the listener.
fn panicked(message: &str) -> Error {
    Error::new(
        ErrorKind::Internal,
        format!("a part of the listener has panicked, so it has stopped: {message}"),
    )
}
