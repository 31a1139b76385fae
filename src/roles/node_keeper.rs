//! Subscribes to each primary of a cluster, and follows slots that move.
//!
//! With attached topics, it also subscribes to the other nodes, to receive every event of a replica that becomes a
//! primary.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::attached::{AttachedRoles, Peers, ServerReader};
use crate::connection::{Cluster, ClusterMap, Endpoint};
use crate::events::{Decoder, Deployment, EventStream, NodeAssignment, SubscriptionSource};
use crate::log::{debug, info};
use crate::roles::event_loop::EventLoop;
use crate::roles::sweeper::Sweeper;
use crate::runtime::{NodeState, Runtime};
use crate::wire::NodeId;
use crate::wire::names::{canary, tag_of};

/// The usual interval of refreshes of the cluster's map.
const MAP_REFRESH_INTERVAL: Duration = Duration::from_secs(30);
/// The interval while a primary has failed, so that attached topics receive its events early when it is back.
const FAILED_PRIMARY_REFRESH_INTERVAL: Duration = Duration::from_secs(5);
/// The interval while a slot has no owner, or no events of a primary arrive.
const UNHEALTHY_REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// With attached topics, how long `UNHEALTHY_REFRESH_INTERVAL` also holds after a change of nodes or slots.
const SETTLING_TIME: Duration = Duration::from_secs(30);
/// The least time between two refreshes.
const MIN_MAP_REFRESH_PAUSE: Duration = Duration::from_millis(100);
/// The interval of refreshes with `save_requests`. A redirected call detects a change earlier.
const SAVING_MAP_REFRESH_INTERVAL: Duration = Duration::from_secs(60);
/// With attached topics, the interval at which one node is asked for changes of the nodes.
const NODE_WATCH_INTERVAL: Duration = Duration::from_secs(2);

/// Keeps one subscription, one event loop and one sweeper for each primary that holds slots. With attached topics, it also
/// keeps a reader and a scanner for each, and a subscription, an event loop and a reader for each other node.
pub(crate) struct NodeKeeper {
    runtime: Arc<Runtime>,
    cluster: Arc<Cluster>,
    decoder: Decoder,
    attached: Option<AttachedRoles>,
    /// The map that was last applied.
    known: Arc<ClusterMap>,
    /// Set once a map with slots was applied.
    had_slots: bool,
    /// When a change of nodes or slots was last detected.
    changed: Option<Instant>,
    /// The nodes with a subscription.
    running: BTreeMap<Endpoint, NodeTasks>,
    /// All tasks of the keeper, which end with it.
    tasks: JoinSet<()>,
}

/// The tasks for one node.
struct NodeTasks {
    node: Arc<NodeState>,
    /// The tasks that run as long as the node is in the map.
    tasks: Vec<AbortHandle>,
    /// The tasks that run while the node holds slots.
    slot_tasks: Vec<AbortHandle>,
}

impl NodeKeeper {
    pub(crate) fn new(
        runtime: Arc<Runtime>,
        cluster: Arc<Cluster>,
        decoder: Decoder,
        attached: Option<AttachedRoles>,
    ) -> Self {
        let (known, running) = (cluster.map().borrow().clone(), BTreeMap::new());
        let (had_slots, changed, tasks) = (false, None, JoinSet::new());
        Self { runtime, cluster, decoder, attached, known, had_slots, changed, running, tasks }
    }

    /// Follows the cluster's map until it is dropped.
    pub(crate) async fn run(mut self) {
        let mut map = self.cluster.map();
        if self.attached.is_some() {
            let cluster = self.cluster.clone();
            self.tasks.spawn(async move { match cluster.watch(NODE_WATCH_INTERVAL).await {} });
        }
        loop {
            let asked = Instant::now();
            if let Err(error) = self.cluster.refresh().await {
                debug!(%error, "no node returns the cluster's map");
            }
            let present = map.borrow_and_update().clone();
            self.apply_map(&present);
            loop {
                let wait = self.refresh_interval(&present);
                tokio::select! {
                    Ok(()) = map.changed() => {
                        let present = map.borrow_and_update().clone();
                        self.apply_map(&present);
                    }
                    () = self.cluster.wait_until_map_stale() => {
                        self.changed = Some(Instant::now());
                        tokio::time::sleep_until(asked + MIN_MAP_REFRESH_PAUSE).await;
                        break;
                    }
                    () = tokio::time::sleep_until(asked + wait) => break,
                    // A panic of a task is a panic of the listener.
                    Some(Err(ended)) = self.tasks.join_next() => {
                        if let Ok(panic) = ended.try_into_panic() {
                            std::panic::resume_unwind(panic);
                        }
                    }
                }
            }
        }
    }

    /// Returns the time from the last refresh of the map to the next.
    fn refresh_interval(&self, map: &ClusterMap) -> Duration {
        let is_settling = self.changed.is_some_and(|at| at.elapsed() < SETTLING_TIME);
        let rounds = self.runtime.client.rounds();
        match &self.attached {
            _ if self.needs_newer_map(map) => {
                rounds.pace(UNHEALTHY_REFRESH_INTERVAL, SAVING_MAP_REFRESH_INTERVAL)
            }
            Some(_) if is_settling => UNHEALTHY_REFRESH_INTERVAL,
            Some(_) if map.failed().next().is_some() => FAILED_PRIMARY_REFRESH_INTERVAL,
            _ => rounds.pace(MAP_REFRESH_INTERVAL, SAVING_MAP_REFRESH_INTERVAL),
        }
    }

    /// Returns whether a newer map is needed soon: a slot has no owner, or no events of a primary arrive.
    fn needs_newer_map(&self, map: &ClusterMap) -> bool {
        let holds_slots = |running: &&NodeTasks| !running.slot_tasks.is_empty();
        let mut holders = self.running.values().filter(holds_slots);
        !map.covers_all_slots() || holders.any(|running| !*running.node.events_flowing.borrow())
    }

    /// Applies a map: subscribes to new nodes, ends the subscriptions of former ones, and updates the assignments of
    /// the rest.
    fn apply_map(&mut self, map: &Arc<ClusterMap>) {
        let mut present = self.wanted_nodes(map);
        let is_gone = |(at, running): (&Endpoint, &NodeTasks)| {
            present.get(at).is_none_or(|(name, _)| *name != running.node.name()).then(|| at.clone())
        };
        let gone: Vec<_> = self.running.iter().filter_map(is_gone).collect();
        gone.iter().for_each(|endpoint| self.close_node(endpoint));
        let gained = map.gained(&self.known);
        if self.had_slots && self.known != *map {
            self.changed = Some(Instant::now());
        }
        self.known = map.clone();
        let kept: Vec<_> = self.running.keys().cloned().collect();
        for endpoint in kept {
            if let Some((_, assignment)) = present.remove(&endpoint) {
                self.assign(&endpoint, assignment, gained.contains(&endpoint));
            }
        }
        for (endpoint, (name, assignment)) in present {
            self.open_node(&endpoint, name, assignment);
        }
        self.had_slots |= map.owned_slot_count() > 0;
    }

    /// Returns the nodes to subscribe to, with their names and assignments. A node without slots has an empty
    /// assignment.
    fn wanted_nodes(&self, map: &ClusterMap) -> BTreeMap<Endpoint, (NodeId, NodeAssignment)> {
        let mut present: BTreeMap<_, _> = BTreeMap::new();
        if self.attached.is_some() {
            let name = |id: &str| NodeId::new(id.as_bytes()).unwrap_or_default();
            let all = map
                .members()
                .map(|member| (member.endpoint.clone(), (name(&member.id), NodeAssignment::default())));
            present.extend(all);
        }
        let namespace = &self.runtime.client.namespace;
        for (owner, tag) in map.least_of_owners(tag_of) {
            let canaries = Some(canary(namespace, tag));
            if let Some((_, assignment)) = present.get_mut(owner) {
                assignment.canaries = canaries;
            } else if self.attached.is_none() {
                present.insert(
                    owner.clone(),
                    (NodeId::NONE, NodeAssignment { canaries, ..NodeAssignment::default() }),
                );
            }
        }
        for (place, partition) in self.runtime.partitions.iter().enumerate() {
            let owner = map.owner(partition.names.slot).and_then(|owner| present.get_mut(owner));
            owner.into_iter().for_each(|(_, assignment)| assignment.partitions.push(place));
        }
        present
    }

    fn open_node(&mut self, endpoint: &Endpoint, name: NodeId, assignment: NodeAssignment) {
        let server = self.cluster.server(endpoint);
        let holds_slots = assignment.canaries.is_some();
        let node = NodeState::new(server.clone(), name, assignment.clone());
        let (runtime, rounds) = (self.runtime.clone(), self.runtime.client.rounds());
        let prompts = self.attached.as_ref().map(AttachedRoles::prompts).unwrap_or_default();
        let (decoder, events_of) = (self.decoder.clone(), node.assignment.subscribe());
        let deployment = if name.is_named() { Deployment::Nodes(name) } else { Deployment::Alone };
        let source = SubscriptionSource {
            server,
            deployment,
            slots_move: true,
            decoder,
            assignment: events_of,
            prompts,
            rounds,
        };
        let (EventStream { events, key_reads }, supervisor) = source.open();
        let mut tasks = vec![self.tasks.spawn(supervisor)];
        let attached = self.attached.as_ref().map(|attached| {
            let (cluster, endpoint) = (self.cluster.clone(), endpoint.clone());
            let peers = if self.had_slots { Peers::of_new_node } else { Peers::of_initial_node };
            let peers = peers(cluster, endpoint, holds_slots);
            let ServerReader { queue, reader } = attached.open_reader(&node, Some(peers), key_reads);
            // The reader ends by itself once no more events can arrive, and it has handled all of them.
            self.tasks.spawn(reader);
            queue
        });
        tasks.push(self.tasks.spawn(EventLoop::new(runtime, node.clone(), events, attached).run()));
        self.running.insert(endpoint.clone(), NodeTasks { node, tasks, slot_tasks: Vec::new() });
        self.assign(endpoint, assignment, false);
    }

    /// Changes the assignment of a server. `gained` is true if it has taken over slots, as events of their keys may
    /// have been missed.
    fn assign(&mut self, endpoint: &Endpoint, assignment: NodeAssignment, gained: bool) {
        let Some(running) = self.running.get_mut(endpoint) else { return };
        let (node, holds_slots, partitions) =
            (running.node.clone(), assignment.canaries.is_some(), assignment.partitions.len());
        node.assignment.send_if_modified(|present| {
            let is_news = *present != assignment;
            *present = assignment;
            is_news
        });
        if gained && self.attached.is_some() {
            self.runtime.update_stream(&node, |known| known.gaps += 1);
        }
        match (holds_slots, running.slot_tasks.is_empty()) {
            (true, true) => {
                info!(server = %endpoint, partitions, "listening to a primary");
                self.runtime.add_node(&node);
                // The sweep finds timers that the former owner did not announce.
                node.request_sweep();
                let sweeper = Sweeper::new(self.runtime.clone(), node.clone());
                running.slot_tasks.push(self.tasks.spawn(sweeper.run()));
                if let Some(attached) = &self.attached {
                    let scan = attached.scan(&node, &self.cluster.server(endpoint));
                    running.slot_tasks.push(self.tasks.spawn(scan));
                }
            }
            (false, false) => {
                info!(server = %endpoint, "the server holds no more slots");
                running.slot_tasks.drain(..).for_each(|role| role.abort());
                self.runtime.remove_node(&node);
            }
            _ => {}
        }
    }

    fn close_node(&mut self, endpoint: &Endpoint) {
        let Some(running) = self.running.remove(endpoint) else { return };
        info!(server = %endpoint, "no longer listening to this server");
        running.tasks.iter().chain(&running.slot_tasks).for_each(AbortHandle::abort);
        self.runtime.remove_node(&running.node);
    }
}
