//! Listens to each primary of a cluster, and follows the slots when they move.
//!
//! Where there are attached topics, to the others, too: what a replica announces once it is a primary is then heard from
//! its first word on.

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

/// Who owns what is asked this often at the least, ...
const MAP_REFRESH_INTERVAL: Duration = Duration::from_secs(30);
/// ... this often while a primary has failed that attached topics shall hear from its first word when it is back, ...
const AWAITED: Duration = Duration::from_secs(5);
/// ... this often while a slot has no owner, or a primary is not heard, ...
const UNHEALTHY_REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// ... and where there are attached topics, for so long after something has changed, ...
const SETTLING: Duration = Duration::from_secs(30);
/// ... and no more often than this, whatever nodes say.
const MIN_MAP_REFRESH_PAUSE: Duration = Duration::from_millis(100);
/// Where requests are saved: a call that is sent on to another node says sooner that something has changed.
const SAVING_MAP_REFRESH_INTERVAL: Duration = Duration::from_secs(60);
/// Where there are attached topics, one node is asked this often whether there are others than before.
const WATCH: Duration = Duration::from_secs(2);

/// Keeps one subscription, one event loop and one sweeper to each primary that holds slots.
pub(crate) struct NodeKeeper {
    runtime: Arc<Runtime>,
    cluster: Arc<Cluster>,
    decoder: Decoder,
    attached: Option<AttachedRoles>,
    /// By which was followed last.
    known: Arc<ClusterMap>,
    /// Whether a map was followed.
    has_begun: bool,
    /// When something has shown last that nodes or slots change.
    changed: Option<Instant>,
    running: BTreeMap<Endpoint, NodeTasks>,
    tasks: JoinSet<()>,
}

/// What is done for one node.
struct NodeTasks {
    node: Arc<NodeState>,
    tasks: Vec<AbortHandle>,
    /// For as long as it holds slots.
    holding: Vec<AbortHandle>,
}

impl NodeKeeper {
    pub(crate) fn new(
        runtime: Arc<Runtime>,
        cluster: Arc<Cluster>,
        decoder: Decoder,
        attached: Option<AttachedRoles>,
    ) -> Self {
        let (known, running) = (cluster.map().borrow().clone(), BTreeMap::new());
        let (has_begun, changed, tasks) = (false, None, JoinSet::new());
        Self { runtime, cluster, decoder, attached, known, has_begun, changed, running, tasks }
    }

    /// Until it is dropped.
    pub(crate) async fn run(mut self) {
        let mut map = self.cluster.map();
        if self.attached.is_some() {
            let cluster = self.cluster.clone();
            self.tasks.spawn(async move { match cluster.watch(WATCH).await {} });
        }
        loop {
            let asked = Instant::now();
            if let Err(error) = self.cluster.refresh().await {
                debug!(%error, "nobody says who owns the cluster's slots");
            }
            let present = map.borrow_and_update().clone();
            self.follow(&present);
            loop {
                let wait = self.next_after(&present);
                tokio::select! {
                    Ok(()) = map.changed() => {
                        let present = map.borrow_and_update().clone();
                        self.follow(&present);
                    }
                    () = self.cluster.wait_until_map_stale() => {
                        self.changed = Some(Instant::now());
                        tokio::time::sleep_until(asked + MIN_MAP_REFRESH_PAUSE).await;
                        break;
                    }
                    () = tokio::time::sleep_until(asked + wait) => break,
                    // A part of the listener has panicked, and so the whole has.
                    Some(Err(ended)) = self.tasks.join_next() => {
                        if let Ok(panic) = ended.try_into_panic() {
                            std::panic::resume_unwind(panic);
                        }
                    }
                }
            }
        }
    }

    /// How long after the last question the next is due.
    fn next_after(&self, map: &ClusterMap) -> Duration {
        let is_settling = self.changed.is_some_and(|at| at.elapsed() < SETTLING);
        let rounds = self.runtime.client.rounds();
        match &self.attached {
            _ if self.is_alert(map) => rounds.pace(UNHEALTHY_REFRESH_INTERVAL, SAVING_MAP_REFRESH_INTERVAL),
            Some(_) if is_settling => UNHEALTHY_REFRESH_INTERVAL,
            Some(_) if map.failed().next().is_some() => AWAITED,
            _ => rounds.pace(MAP_REFRESH_INTERVAL, SAVING_MAP_REFRESH_INTERVAL),
        }
    }

    /// Whether something is not as it should be, which another map may explain.
    fn is_alert(&self, map: &ClusterMap) -> bool {
        let holds_slots = |running: &&NodeTasks| !running.holding.is_empty();
        let mut holders = self.running.values().filter(holds_slots);
        !map.covers_all_slots() || holders.any(|running| !*running.node.events_flowing.borrow())
    }

    /// Begins to listen where slots are, ends where they are no more, and tells the others what is theirs.
    fn follow(&mut self, map: &Arc<ClusterMap>) {
        let mut present = self.present(map);
        let is_gone = |(at, running): (&Endpoint, &NodeTasks)| {
            present.get(at).is_none_or(|(name, _)| *name != running.node.name()).then(|| at.clone())
        };
        let gone: Vec<_> = self.running.iter().filter_map(is_gone).collect();
        gone.iter().for_each(|endpoint| self.end(endpoint));
        let gained = map.gained(&self.known);
        if self.has_begun && self.known != *map {
            self.changed = Some(Instant::now());
        }
        self.known = map.clone();
        let kept: Vec<_> = self.running.keys().cloned().collect();
        for endpoint in kept {
            if let Some((_, share)) = present.remove(&endpoint) {
                self.give(&endpoint, share, gained.contains(&endpoint));
            }
        }
        for (endpoint, (name, share)) in present {
            self.begin(&endpoint, name, share);
        }
        self.has_begun |= map.owned_slot_count() > 0;
    }

    /// Whom to listen to, by name, and what each has of the work: nothing, unless it owns slots.
    fn present(&self, map: &ClusterMap) -> BTreeMap<Endpoint, (NodeId, NodeAssignment)> {
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
            if let Some((_, share)) = present.get_mut(owner) {
                share.canaries = canaries;
            } else if self.attached.is_none() {
                present.insert(
                    owner.clone(),
                    (NodeId::NONE, NodeAssignment { canaries, ..NodeAssignment::default() }),
                );
            }
        }
        for (place, partition) in self.runtime.partitions.iter().enumerate() {
            let owner = map.owner(partition.names.slot).and_then(|owner| present.get_mut(owner));
            owner.into_iter().for_each(|(_, share)| share.partitions.push(place));
        }
        present
    }

    fn begin(&mut self, endpoint: &Endpoint, name: NodeId, share: NodeAssignment) {
        let server = self.cluster.server(endpoint);
        let holds_slots = share.canaries.is_some();
        let node = NodeState::new(server.clone(), name, share.clone());
        let (runtime, rounds) = (self.runtime.clone(), self.runtime.client.rounds());
        let prompts = self.attached.as_ref().map(AttachedRoles::prompts).unwrap_or_default();
        let (decoder, events_of) = (self.decoder.clone(), node.share.subscribe());
        let among = if name.is_named() { Deployment::Nodes(name) } else { Deployment::Alone };
        let source = SubscriptionSource {
            server,
            among,
            slots_move: true,
            decoder,
            share: events_of,
            prompts,
            rounds,
        };
        let (EventStream { events, touches }, supervisor) = source.open();
        let mut tasks = vec![self.tasks.spawn(supervisor)];
        let attached = self.attached.as_ref().map(|attached| {
            let (cluster, endpoint) = (self.cluster.clone(), endpoint.clone());
            let peers = if self.has_begun { Peers::nodes } else { Peers::first_nodes };
            let peers = peers(cluster, endpoint, holds_slots);
            let ServerReader { ear, reader } = attached.open_reader(&node, Some(peers), touches);
            // It ends by itself once nothing is heard any more, and all that was heard has come to its end.
            self.tasks.spawn(reader);
            ear
        });
        tasks.push(self.tasks.spawn(EventLoop::new(runtime, node.clone(), events, attached).run()));
        self.running.insert(endpoint.clone(), NodeTasks { node, tasks, holding: Vec::new() });
        self.give(endpoint, share, false);
    }

    /// Tells a server's roles what it has of the work from now on. `gained`: slots of others are there now, with keys that
    /// may have been missed on their way.
    fn give(&mut self, endpoint: &Endpoint, share: NodeAssignment, gained: bool) {
        let Some(running) = self.running.get_mut(endpoint) else { return };
        let (node, holds_slots, partitions) =
            (running.node.clone(), share.canaries.is_some(), share.partitions.len());
        node.share.send_if_modified(|present| {
            let is_news = *present != share;
            *present = share;
            is_news
        });
        if gained && self.attached.is_some() {
            self.runtime.learn(&node, |known| known.gaps += 1);
        }
        match (holds_slots, running.holding.is_empty()) {
            (true, true) => {
                info!(server = %endpoint, partitions, "listening to a primary");
                self.runtime.add_node(&node);
                // What its former owner had told nobody is looked for at once.
                node.sweep();
                let sweeper = Sweeper::new(self.runtime.clone(), node.clone());
                running.holding.push(self.tasks.spawn(sweeper.run()));
                if let Some(attached) = &self.attached {
                    let scan = attached.scan(&node, &self.cluster.server(endpoint));
                    running.holding.push(self.tasks.spawn(scan));
                }
            }
            (false, false) => {
                info!(server = %endpoint, "the server holds no slots any more");
                running.holding.drain(..).for_each(|role| role.abort());
                self.runtime.remove_node(&node);
            }
            _ => {}
        }
    }

    fn end(&mut self, endpoint: &Endpoint) {
        let Some(running) = self.running.remove(endpoint) else { return };
        info!(server = %endpoint, "no longer listening there");
        running.tasks.iter().chain(&running.holding).for_each(AbortHandle::abort);
        self.runtime.remove_node(&running.node);
    }
}
