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
use crate::roles::expirer;
use crate::roles::leases::{guard_leases, keep_leases};
use crate::roles::node_keeper::NodeKeeper;
use crate::roles::reporter::{Reporter, delete_report};
use crate::roles::settler::Settler;
use crate::roles::starter::Starter;
use crate::roles::sweeper::{Sweeper, repair};
use crate::runtime::{NodeState, Partition, QuarantineGroups, RunningTopic, Runtime};

/// The time limit of settling and releasing timers at the end, if the server does not answer.
const STOP_SETTLE_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit of each step that deletes the listener's entries in Redis at the end.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs the listener until `shutdown` completes.
pub(super) async fn run(listener: Listener, shutdown: impl Future) -> Result<()> {
    let Listener { runtime, grace, manage_notifications, handlers, subscriber } = listener;
    let _leases_guard = LeasesGuard(runtime.clone());
    let (stop, stopped) = oneshot::channel();
    let handlers = match handlers {
        Some(handlers) => handlers,
        None => Handle::try_current().map_err(|_| no_runtime_error())?,
    };
    check_timers(&handlers)?;
    let virtual_time = runtime.client.virtual_time();
    let work = move || run_roles(runtime, manage_notifications, grace, handlers, stopped);
    let work = if virtual_time { work().boxed() } else { on_own_thread(subscriber, work).boxed() };
    let (mut work, mut shutdown) = (work, pin!(shutdown));
    tokio::select! {
        ended = &mut work => return ended,
        _ = &mut shutdown => drop(stop.send(())),
    }
    work.await
}

/// Gives up all leases when this is dropped: when the listener has ended, or when its future is dropped.
struct LeasesGuard(Arc<Runtime>);

impl Drop for LeasesGuard {
    fn drop(&mut self) {
        self.0.partitions.iter().for_each(|partition| partition.leases.abandon());
    }
}

/// Prepares the topics, runs the roles until `stopped` or a failure, and stops the roles. Runs on the listener's thread.
async fn run_roles(
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
    let mut handlers_shutdown = detect_shutdown(&handlers);
    let starter = Starter::new(&runtime, handlers).map_err(|error| no_thread_error(&error))?;
    let _closed_at_last = starter.close_on_drop();
    let mut roles = Roles::start(&runtime, &starter);
    let ready = runtime.readiness.set_ready();
    info!(topics = ?runtime.topics, "listening");
    let failed = tokio::select! {
        _ = &mut stopped => None,
        failed = roles.first_failure() => Some(failed),
        _ = handlers_shutdown.join_next() => Some(handlers_shut_down_error()),
    };
    drop(ready);
    if let Some(failed) = &failed {
        error!(error = %failed, "stopping");
    }
    roles.stop(&runtime, grace, &starter).await;
    failed.map_or(Ok(()), Err)
}

/// Spawns a task that ends only when the runtime of the handlers is shut down.
fn detect_shutdown(handlers: &Handle) -> JoinSet<()> {
    let mut ends = JoinSet::new();
    ends.spawn_on(std::future::pending(), handlers);
    ends
}

/// The error of a listener whose handlers' runtime was shut down. It stops, as each further attempt would cost its
/// timer a lease.
fn handlers_shut_down_error() -> Error {
    let message = "the runtime of the handlers was shut down, so the listener has stopped; keep it until `run_until` returns";
    Error::new(ErrorKind::Internal, message)
}

fn no_runtime_error() -> Error {
    Error::invalid(
        "a listener needs a tokio runtime for its handlers: await `run_until` on one, or name one by `handlers_on`",
    )
}

/// Rejects a runtime without timers, which attempts need for their timeout. tokio offers no other check than to
/// create a timer, which panics there.
fn check_timers(handlers: &Handle) -> Result<()> {
    let _entered = handlers.enter();
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
    /// The claimers' IDs in Redis, by partition.
    claimer_ids: Vec<(Arc<Partition>, SlotId)>,
    /// The first partition of each attached topic, with the ID under which this listener may have a duty for the topic.
    duty_slots: Vec<(Arc<Partition>, SlotId)>,
    /// Dropped to stop the claimers.
    stop: watch::Sender<()>,
}

impl Roles {
    fn start(runtime: &Arc<Runtime>, starter: &Starter) -> Self {
        let mut roles = Self::default();
        let (marker_checks, checking) = expirer::marker_checks(runtime.client.store.clone());
        roles.keeping.spawn(checking);
        let groups =
            QuarantineGroups::new(runtime.partitions.first().map_or(1, |one| one.limiter.total_slots()));
        for partition in &runtime.partitions {
            let claimer = || Claimer::new(partition.clone(), starter.clone(), marker_checks.clone());
            for claimer in [claimer(), claimer().of_quarantine(groups.clone())] {
                roles.claimer_ids.push((partition.clone(), claimer.id));
                roles.claiming.spawn(claimer.run(roles.stop.subscribe()));
            }
            roles.keeping.spawn(keep_leases(partition.clone()));
            roles.keeping.spawn(Settler { partition: partition.clone() }.run());
        }
        // Fences arrive with the events, and matter until the last attempt has ended.
        roles.start_event_roles(runtime);
        roles.keeping.spawn(guard_leases(runtime.clone()));
        roles.keeping.spawn(repair(runtime.clone()));
        roles.keeping.spawn(Reporter::new(runtime.clone()).run());
        roles.keeping.spawn(watch_settings(runtime.clone()));
        roles
    }

    /// Starts the roles of each server: the subscription, the event loop and the sweeper. Also starts the roles of attached
    /// topics.
    fn start_event_roles(&mut self, runtime: &Arc<Runtime>) {
        let partitions: Vec<_> = runtime.partitions.iter().map(|partition| partition.names.clone()).collect();
        let prefix = |topic: &Arc<RunningTopic>| topic.config.pattern.literal_prefix().to_owned();
        let prefixes: Vec<_> = runtime.attached_topics().map(prefix).collect();
        let client = &runtime.client;
        let db = client.store.target().options.db;
        let topology = client.store.topology();
        let decoder = Decoder::new(&client.namespace, db, &partitions, &prefixes, topology.is_cluster());
        let attached = runtime.attached_topics().next().map(|_| {
            let attached = AttachedRoles::start(runtime, &mut self.keeping, &mut self.writers);
            self.duty_slots.clone_from(&attached.duty_slots);
            attached
        });
        if let Some(server) = topology.only() {
            self.start_only_server(runtime, server, decoder, attached.as_ref());
        } else if let Some(cluster) = topology.cluster() {
            let keeper = NodeKeeper::new(runtime.clone(), cluster.clone(), decoder, attached);
            self.keeping.spawn(keeper.run());
        }
    }

    /// Starts the roles of the only server. With attached topics, also starts its reader and its scanner.
    fn start_only_server(
        &mut self,
        runtime: &Arc<Runtime>,
        server: &Server,
        decoder: Decoder,
        attached: Option<&AttachedRoles>,
    ) {
        let (client, node) = (&runtime.client, NodeState::of_only_server(server, runtime));
        runtime.add_node(&node);
        let (assignment, rounds) = (node.assignment.subscribe(), client.rounds());
        let prompts = attached.map(AttachedRoles::prompts).unwrap_or_default();
        let peers = attached.and_then(|_| Peers::of_sentinels(server));
        let deployment = if peers.is_some() { Deployment::Successors } else { Deployment::Alone };
        let source = SubscriptionSource {
            server: server.clone(),
            deployment,
            slots_move: false,
            decoder,
            assignment,
            prompts,
            rounds,
        };
        let (EventStream { events, key_reads }, supervisor) = source.open();
        self.keeping.spawn(supervisor);
        let attached = attached.map(|attached| {
            let ServerReader { queue, reader } = attached.open_reader(&node, peers, key_reads);
            self.keeping.spawn(reader);
            self.keeping.spawn(attached.scan(&node, server));
            queue
        });
        let event_loop = EventLoop::new(runtime.clone(), node.clone(), events, attached);
        self.keeping.spawn(event_loop.run());
        self.keeping.spawn(Sweeper::new(runtime.clone(), node).run());
    }

    /// Waits until a role ends, and returns why. A role that ends before `stop` has failed.
    async fn first_failure(&mut self) -> Error {
        let ended = tokio::select! {
            Some(ended) = self.claiming.join_next() => ended,
            Some(ended) = self.keeping.join_next() => ended,
            Some(ended) = self.writers.join_next() => ended,
            else => return panic_error("no role is left"),
        };
        match ended.map_err(tokio::task::JoinError::try_into_panic) {
            Err(Ok(panic)) => panic_error(&message(panic)),
            _ => panic_error("a role ended by itself"),
        }
    }

    /// Stops claiming, waits for running attempts within `grace`, stops the others, and releases their timers.
    async fn stop(mut self, runtime: &Arc<Runtime>, grace: Duration, starter: &Starter) {
        info!("stopping: no more claims");
        let until = Instant::now() + grace;
        drop(self.stop);
        let _ = tokio::time::timeout_at(until, wait_for_all(&mut self.claiming)).await;
        release_unstarted(runtime, starter);
        let idle = join_all(runtime.partitions.iter().map(|partition| partition.leases.wait_until_empty()));
        if tokio::time::timeout_at(until, idle).await.is_err() {
            stop_running(runtime).await;
        }
        let settled = async {
            // The starter also releases timers of a claim that is answered only now.
            wait_for_all(&mut self.claiming).await;
            join_all(runtime.partitions.iter().map(|partition| partition.outbox.wait_until_empty())).await;
        };
        if tokio::time::timeout(STOP_SETTLE_TIMEOUT, settled).await.is_err() {
            self.claiming.abort_all();
            warn!("the server does not answer: unsettled timers run again when their leases end");
        }
        let releases = self.claimer_ids.iter().map(|(at, id)| at.store.release_claimer(&at.names, *id));
        // The slow repair deletes entries that remain after a day.
        let _ = tokio::time::timeout(CLEANUP_TIMEOUT, join_all(releases)).await;
        self.keeping.shutdown().await;
        let _ = tokio::time::timeout(CLEANUP_TIMEOUT, delete_report(runtime)).await;
        // The writers write all events received so far, and end, as every role that feeds them has ended.
        let _ = tokio::time::timeout(STOP_SETTLE_TIMEOUT, wait_for_all(&mut self.writers)).await;
        let left = self.duty_slots.iter().map(|(at, slot)| at.store.take_duty(&at.names, *slot, 0, false));
        let _ = tokio::time::timeout(CLEANUP_TIMEOUT, join_all(left)).await;
        info!("stopped");
    }
}

/// Waits until all tasks have ended.
async fn wait_for_all(roles: &mut JoinSet<()>) {
    while roles.join_next().await.is_some() {}
}

/// Closes the starter, and releases its timers.
fn release_unstarted(runtime: &Runtime, starter: &Starter) {
    let jobs = starter.close();
    if !jobs.is_empty() {
        let topics = runtime.topics.len();
        info!(count = jobs.len(), topics, "releasing timers whose attempts have not started");
    }
    jobs.into_iter().for_each(Job::release_unrun);
}

/// Stops running attempts, and gives up the leases of those that do not stop. An attempt releases its timer only once it
/// has stopped, or two attempts could run at the same time.
async fn stop_running(runtime: &Runtime) {
    for partition in &runtime.partitions {
        let count = partition.leases.ask_to_stop();
        if count > 0 {
            warn!(topic = %partition.topic.config.name, count, "stopping attempts that did not end in time");
        }
    }
    let ended = join_all(runtime.partitions.iter().map(|partition| partition.leases.wait_until_all_ended()));
    let _ = tokio::time::timeout(HANDLER_STOP_GRACE, ended).await;
    for partition in &runtime.partitions {
        for held in partition.leases.give_up_unended() {
            let (topic, key) = (&partition.topic, Escaped(&held.key));
            topic.stats.lost_leases.add(1);
            warn!(?topic, %key, "a handler blocks and cannot be stopped: others run its timer when its lease ends");
        }
    }
}

/// Runs `work` on a new thread with a new runtime, until it ends or this future is dropped. All tasks that it has spawned
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
            Builder::new_current_thread().enable_all().build().map_err(|error| no_thread_error(&error))?;
        let ended = runtime.block_on(async {
            tokio::select! {
                biased;
                _ = abandoned => Ok(Ok(())), // nobody receives the result
                ended = AssertUnwindSafe(async { work().await }).catch_unwind() => ended,
            }
        });
        drop(runtime);
        ended.unwrap_or_else(|panic| Err(panic_error(&message(panic))))
    };
    let thread = thread::Builder::new().name("keylapse".into());
    thread.spawn(move || drop(answer.send(work()))).map_err(|error| no_thread_error(&error))?;
    let ended = answered.await;
    drop(alive);
    ended.unwrap_or_else(|_| Err(panic_error("its thread ended without a result")))
}

/// The error of a thread, or its runtime, that cannot be created.
fn no_thread_error(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Internal, format!("cannot start a thread of the listener: {error}"))
}

/// The error of a panic in a part of the listener.
fn panic_error(message: &str) -> Error {
    Error::new(
        ErrorKind::Internal,
        format!("a part of the listener has panicked, so it has stopped: {message}"),
    )
}
