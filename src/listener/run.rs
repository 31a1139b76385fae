//! Starts, runs and stops a listener.
//!
//! Its roles run on their own thread, so that no handler delays them.

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

use crate::attached::{AttachedRoles, Peers, ServerReader};
use crate::connection::Server;
use crate::error::{Error, ErrorKind, Result};
use crate::escape::Escaped;
use crate::events::{Decoder, Deployment, EventStream, SubscriptionSource};
use crate::id::SlotId;
use crate::lease::HANDLER_STOP_GRACE;
use crate::listener::Listener;
use crate::listener::start::{prepare, watch_settings};
use crate::log::{error, info, warn};
use crate::panics::{catch_panic, message};
use crate::roles::attempt::Job;
use crate::roles::claimer::Claimer;
use crate::roles::event_loop::EventLoop;
use crate::roles::expirer::marker_checks;
use crate::roles::leases::{guard_leases, keep_leases};
use crate::roles::node_keeper::NodeKeeper;
use crate::roles::reporter::{Reporter, leave};
use crate::roles::settler::Settler;
use crate::roles::starter::Starter;
use crate::roles::sweeper::{Sweeper, repair};
use crate::runtime::{Groups, NodeState, Partition, RunningTopic, Runtime};

/// The time limit of settling and releasing timers at the end, if the server does not answer.
const STOP_SETTLE_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit of deleting the listener's entries in Redis at the end.
const CLOSING: Duration = Duration::from_secs(1);

/// Runs the listener until `shutdown` completes.
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

/// Gives up all leases when the listener ends, also if its future is dropped.
struct Owned(Arc<Runtime>);

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.partitions.iter().for_each(|partition| partition.leases.abandon());
    }
}

/// Prepares the topics, runs the roles until `stopped`, and stops them. Runs on the listener's thread.
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

/// Spawns a task that ends only if this runtime is shut down.
fn end_of(handlers: &Handle) -> JoinSet<()> {
    let mut ends = JoinSet::new();
    ends.spawn_on(std::future::pending(), handlers);
    ends
}

/// The error of a listener whose handlers' runtime was shut down. It stops, as each further attempt would cost its
/// timer a lease.
fn without_handlers() -> Error {
    let message = "the runtime of the handlers was shut down, so the listener has stopped; keep it until `run_until` returns";
    Error::new(ErrorKind::Internal, message)
}

fn without_runtime() -> Error {
    Error::invalid(
        "a listener needs a tokio runtime for its handlers: await `run_until` on one, or name one by `handlers_on`",
    )
}

/// Rejects a runtime without timers, which attempts need for their timeout. tokio offers no other check than to
/// create a timer, which panics there.
fn check_timers(handlers: &Handle) -> Result<()> {
    let _there = handlers.enter();
    catch_panic(|| drop(tokio::time::sleep(Duration::ZERO))).map_err(|_| {
        Error::invalid(
            "the runtime of the handlers has no timers, which the timeout of each attempt needs: build it with \
             `enable_time()` or `enable_all()`",
        )
    })
}

/// The running tasks, in the order in which they stop.
#[derive(Default)]
struct Roles {
    /// Tasks that claim timers.
    claiming: JoinSet<()>,
    /// Tasks that receive events, renew leases and settle attempts.
    keeping: JoinSet<()>,
    /// Tasks that write the events of attached keys to Redis.
    writers: JoinSet<()>,
    slots: Vec<(Arc<Partition>, SlotId)>,
    /// The partitions for whose topics this listener may scan or track keys.
    scanners: Vec<(Arc<Partition>, SlotId)>,
    /// Dropped to stop the claimers.
    stop: watch::Sender<()>,
}

impl Roles {
    fn start(runtime: &Arc<Runtime>, starter: &Starter) -> Self {
        let mut roles = Self::default();
        let (touched, touching) = marker_checks(runtime.client.store.clone());
        roles.keeping.spawn(touching);
        let groups = Groups::new(runtime.partitions.first().map_or(1, |one| one.limiter.total_slots()));
        for partition in &runtime.partitions {
            let claimer = || Claimer::new(partition.clone(), starter.clone(), touched.clone());
            for claimer in [claimer(), claimer().of_quarantine(groups.clone())] {
                roles.slots.push((partition.clone(), claimer.slot));
                roles.claiming.spawn(claimer.run(roles.stop.subscribe()));
            }
            roles.keeping.spawn(keep_leases(partition.clone()));
            roles.keeping.spawn(Settler { partition: partition.clone() }.run());
        }
        // Fences arrive with the events, and matter until the last attempt has ended.
        roles.listen(runtime);
        roles.keeping.spawn(guard_leases(runtime.clone()));
        roles.keeping.spawn(repair(runtime.clone()));
        roles.keeping.spawn(Reporter::new(runtime.clone()).run());
        roles.keeping.spawn(watch_settings(runtime.clone()));
        roles
    }

    /// Starts to receive events of each server, and to sweep it.
    fn listen(&mut self, runtime: &Arc<Runtime>) {
        let partitions: Vec<_> = runtime.partitions.iter().map(|partition| partition.names.clone()).collect();
        let prefix = |topic: &Arc<RunningTopic>| topic.config.pattern.literal_prefix().to_owned();
        let prefixes: Vec<_> = runtime.attached_topics().map(prefix).collect();
        let client = &runtime.client;
        let db = client.store.target().options.db;
        let topology = client.store.topology();
        let decoder = Decoder::new(&client.namespace, db, &partitions, &prefixes, topology.is_cluster());
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

    /// Starts to receive events of the only server, and to sweep it. Also reads attached keys, if there are attached
    /// topics.
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
        let among = if peers.is_some() { Deployment::Successors } else { Deployment::Alone };
        let source = SubscriptionSource {
            server: server.clone(),
            among,
            slots_move: false,
            decoder,
            share,
            prompts,
            rounds,
        };
        let (EventStream { events, touches }, supervisor) = source.open();
        self.keeping.spawn(supervisor);
        let attached = attached.map(|attached| {
            let ServerReader { ear, reader } = attached.open_reader(&node, peers, touches);
            self.keeping.spawn(reader);
            self.keeping.spawn(attached.scan(&node, server));
            ear
        });
        let event_loop = EventLoop::new(runtime.clone(), node.clone(), events, attached);
        self.keeping.spawn(event_loop.run());
        self.keeping.spawn(Sweeper::new(runtime.clone(), node).run());
    }

    /// Returns why the first role ended. A role that ends before `stop` has failed.
    async fn one_has_ended(&mut self) -> Error {
        let ended = tokio::select! {
            Some(ended) = self.claiming.join_next() => ended,
            Some(ended) = self.keeping.join_next() => ended,
            Some(ended) = self.writers.join_next() => ended,
            else => return panicked("no role is left"),
        };
        match ended.map_err(tokio::task::JoinError::try_into_panic) {
            Err(Ok(panic)) => panicked(&message(panic)),
            _ => panicked("a role ended by itself"),
        }
    }

    /// Stops claiming, waits for running attempts within `grace`, stops the others, and releases their timers.
    async fn stop(mut self, runtime: &Arc<Runtime>, grace: Duration, starter: &Starter) {
        info!("stopping: no more claims");
        let until = Instant::now() + grace;
        drop(self.stop);
        let _ = tokio::time::timeout_at(until, all_end(&mut self.claiming)).await;
        release_unstarted(runtime, starter);
        let idle = join_all(runtime.partitions.iter().map(|partition| partition.leases.emptied()));
        if tokio::time::timeout_at(until, idle).await.is_err() {
            stop_running(runtime).await;
        }
        let settled = async {
            // The starter also releases timers of a claim that is answered only now.
            all_end(&mut self.claiming).await;
            join_all(runtime.partitions.iter().map(|partition| partition.outbox.empty())).await;
        };
        if tokio::time::timeout(STOP_SETTLE_TIMEOUT, settled).await.is_err() {
            self.claiming.abort_all();
            warn!("the server does not answer: unsettled timers run again when their leases end");
        }
        let slots = self.slots.iter().map(|(at, slot)| at.store.release_claimer(&at.names, *slot));
        // The slow repair deletes entries that remain after a day.
        let _ = tokio::time::timeout(CLOSING, join_all(slots)).await;
        self.keeping.shutdown().await;
        let _ = tokio::time::timeout(CLOSING, leave(runtime)).await;
        // The writers write all events received so far, and end, as every role that feeds them has ended.
        let _ = tokio::time::timeout(STOP_SETTLE_TIMEOUT, all_end(&mut self.writers)).await;
        let left = self.scanners.iter().map(|(at, slot)| at.store.take_duty(&at.names, *slot, 0, false));
        let _ = tokio::time::timeout(CLOSING, join_all(left)).await;
        info!("stopped");
    }
}

async fn all_end(roles: &mut JoinSet<()>) {
    while roles.join_next().await.is_some() {}
}

fn release_unstarted(runtime: &Runtime, starter: &Starter) {
    let jobs = starter.close();
    if !jobs.is_empty() {
        let topics = runtime.topics.len();
        info!(count = jobs.len(), topics, "releasing timers whose attempts have not started");
    }
    jobs.into_iter().for_each(Job::release_unrun);
}

/// Stops running attempts. Each releases its timer only once it has stopped, or two attempts could run at the same
/// time.
async fn stop_running(runtime: &Runtime) {
    for partition in &runtime.partitions {
        let count = partition.leases.stop();
        if count > 0 {
            warn!(topic = %partition.topic.config.name, count, "stopping attempts that did not end in time");
        }
    }
    let ended = join_all(runtime.partitions.iter().map(|partition| partition.leases.ended()));
    let _ = tokio::time::timeout(HANDLER_STOP_GRACE, ended).await;
    for partition in &runtime.partitions {
        for held in partition.leases.give_up() {
            let (topic, key) = (&partition.topic, Escaped(&held.key));
            topic.stats.lost_leases.add(1);
            warn!(?topic, %key, "a handler blocks and cannot be stopped: others run its timer when its lease ends");
        }
    }
}

/// Runs `work` on its own thread and runtime, until it ends or this future is dropped. All tasks that it has spawned
/// end before its result is returned.
async fn on_own_thread<F>(subscriber: Dispatch, work: impl FnOnce() -> F + Send + 'static) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let (alive, abandoned) = oneshot::channel::<Infallible>();
    let (answer, answered) = oneshot::channel();
    let work = move || {
        // A global subscriber also receives events of this thread, even if it is set later.
        let _subscriber = (!subscriber.is::<NoSubscriber>()).then(|| set_default(&subscriber));
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(|error| no_thread(&error))?;
        let ended = runtime.block_on(async {
            tokio::select! {
                biased;
                _ = abandoned => Ok(Ok(())), // nobody receives the result
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
    ended.unwrap_or_else(|_| Err(panicked("its thread ended without a result")))
}

/// The error of a thread, or its runtime, that cannot be created.
fn no_thread(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Internal, format!("cannot start a thread of the listener: {error}"))
}

/// The error of a panic in a part of the listener.
fn panicked(message: &str) -> Error {
    Error::new(
        ErrorKind::Internal,
        format!("a part of the listener has panicked, so it has stopped: {message}"),
    )
}
