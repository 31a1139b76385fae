//! Listens to each primary of a cluster, and follows the slots when they move.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::connection::{Cluster, ClusterMap, Endpoint};
use crate::events::{self, Decoder, EventStream, Share};
use crate::log::{debug, info};
use crate::roles::event_loop::EventLoop;
use crate::roles::sweeper::Sweeper;
use crate::runtime::{NodeState, Runtime};
use crate::wire::canary_tags::tag_of;
use crate::wire::names::canary;

/// Who owns what is asked this often at the least, ...
const CALM: Duration = Duration::from_secs(30);
/// ... this often while a slot has no owner, or a primary is not heard, ...
const ALERT: Duration = Duration::from_secs(1);
/// ... and no more often than this, whatever nodes say.
const REST: Duration = Duration::from_millis(100);

/// Keeps one subscription, one event loop and one sweeper to each primary that holds slots.
pub(crate) struct NodeKeeper {
    runtime: Arc<Runtime>,
    cluster: Arc<Cluster>,
    decoder: Decoder,
    running: BTreeMap<Endpoint, Running>,
    tasks: JoinSet<()>,
}

/// What is done for one node.
struct Running {
    node: Arc<NodeState>,
    tasks: Vec<AbortHandle>,
}

impl NodeKeeper {
    pub(crate) fn new(runtime: Arc<Runtime>, cluster: Arc<Cluster>, decoder: Decoder) -> Self {
        Self { runtime, cluster, decoder, running: BTreeMap::new(), tasks: JoinSet::new() }
    }

    /// Until it is dropped.
    pub(crate) async fn run(mut self) {
        let mut map = self.cluster.map();
        loop {
            let asked = Instant::now();
            if let Err(error) = self.cluster.refresh().await {
                debug!(%error, "nobody says who owns the cluster's slots");
            }
            let present = map.borrow_and_update().clone();
            self.follow(&present);
            loop {
                let wait = if self.is_alert(&present) { ALERT } else { CALM };
                tokio::select! {
                    Ok(()) = map.changed() => {
                        let present = map.borrow_and_update().clone();
                        self.follow(&present);
                    }
                    () = self.cluster.suspected() => {
                        tokio::time::sleep_until(asked + REST).await;
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

    /// Whether something is not as it should be, which another map may explain.
    fn is_alert(&self, map: &ClusterMap) -> bool {
        !map.is_whole() || self.running.values().any(|running| !*running.node.calm.borrow())
    }

    /// Begins to listen where slots are, ends where they are no more, and tells the others what is theirs.
    fn follow(&mut self, map: &ClusterMap) {
        let mut shares = self.shares(map);
        let gone: Vec<_> = self.running.keys().filter(|at| !shares.contains_key(at)).cloned().collect();
        gone.iter().for_each(|endpoint| self.end(endpoint));
        for (endpoint, running) in &self.running {
            let Some(share) = shares.remove(endpoint) else { continue };
            running.node.share.send_if_modified(|present| {
                let is_news = *present != share;
                *present = share;
                is_news
            });
        }
        for (endpoint, share) in shares {
            self.begin(endpoint, share);
        }
    }

    /// What each owner of slots has of the work.
    fn shares(&self, map: &ClusterMap) -> BTreeMap<Endpoint, Share> {
        let namespace = &self.runtime.client.namespace;
        let share = |lowest| Share { canaries: Some(canary(namespace, tag_of(lowest))), ..Share::default() };
        let owners = map.owners().into_iter();
        let mut shares: BTreeMap<_, _> =
            owners.map(|(owner, lowest)| (owner.clone(), share(lowest))).collect();
        for (place, partition) in self.runtime.partitions.iter().enumerate() {
            let owner = map.owner(partition.names.slot).and_then(|owner| shares.get_mut(owner));
            owner.into_iter().for_each(|share| share.partitions.push(place));
        }
        shares
    }

    fn begin(&mut self, endpoint: Endpoint, share: Share) {
        let place = self.cluster.server(&endpoint).place().clone();
        info!(server = %endpoint, partitions = share.partitions.len(), "listening to a primary");
        let node = NodeState::new(place, share);
        let rounds = self.runtime.client.rounds();
        let (stream, supervisor) =
            events::open(node.place(), self.decoder.clone(), node.share.subscribe(), rounds);
        let EventStream { events, .. } = stream;
        let event_loop =
            EventLoop { runtime: self.runtime.clone(), node: node.clone(), events, attached: None };
        let sweeper = Sweeper::new(self.runtime.clone(), node.clone());
        // What its former owner had told nobody is looked for at once.
        node.sweep();
        let tasks = vec![
            self.tasks.spawn(supervisor),
            self.tasks.spawn(event_loop.run()),
            self.tasks.spawn(sweeper.run()),
        ];
        self.runtime.nodes.add(&node);
        self.running.insert(endpoint, Running { node, tasks });
    }

    fn end(&mut self, endpoint: &Endpoint) {
        let Some(running) = self.running.remove(endpoint) else { return };
        info!(server = %endpoint, "no longer listening there: the server holds no slots");
        running.tasks.iter().for_each(AbortHandle::abort);
        self.runtime.nodes.remove(&running.node);
    }
}
