//! The servers whose events a listener receives, and the state of each.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use crate::connection::{Address, Server};
use crate::events::{Event, Gap, NodeAssignment};
use crate::lock::lock;
use crate::runtime::{EventMode, Runtime, StreamSnapshot};
use crate::stats::meter;
use crate::wire::NodeId;
use crate::wire::names::canary;

/// The state of a server, which is the only one or a primary of a cluster.
pub(crate) struct NodeState {
    server: Server,
    /// The server's name if there are several.
    name: NodeId,
    /// The partitions and heartbeat keys that the server has.
    pub(crate) share: watch::Sender<NodeAssignment>,
    /// True while heartbeat keys prove that events arrive. It is published again, even unchanged, when a sweep is
    /// needed.
    pub(crate) events_flowing: watch::Sender<bool>,
    /// The state of its event stream, for attached topics.
    known: watch::Sender<StreamSnapshot>,
    subscription: Mutex<SubscriptionHealth>,
    gaps: AtomicU64,
}

/// The state of a subscription.
#[derive(Clone, Copy, Debug, Default)]
struct SubscriptionHealth {
    mode: EventMode,
    /// The reason of the current gap, if any.
    gap: Option<Gap>,
}

impl NodeState {
    pub(crate) fn new(server: Server, name: NodeId, share: NodeAssignment) -> Arc<Self> {
        Arc::new(Self {
            server,
            name,
            share: watch::Sender::new(share),
            events_flowing: watch::Sender::default(),
            known: watch::Sender::default(),
            subscription: Mutex::default(),
            gaps: AtomicU64::default(),
        })
    }

    /// Creates the state of the only server, which has all partitions.
    pub(crate) fn only(server: &Server, runtime: &Runtime) -> Arc<Self> {
        let canaries = Some(canary(&runtime.client.namespace, 0));
        let share = NodeAssignment { partitions: (0..runtime.partitions.len()).collect(), canaries };
        Self::new(server.clone(), NodeId::NONE, share)
    }

    /// Creates the state of the server of a test bed.
    #[cfg(test)]
    pub(crate) fn of(runtime: &Runtime) -> Arc<Self> {
        let server = runtime.client.store.topology().only().expect("a test bed must have one server");
        Self::only(server, runtime)
    }

    /// Returns the server's name, which is empty if there is only one.
    pub(crate) fn name(&self) -> NodeId {
        self.name
    }

    /// Returns the server's current address.
    pub(crate) fn address(&self) -> Address {
        self.server.last_address()
    }

    /// Updates the state of the subscription from an event.
    pub(crate) fn note(&self, event: &Event) {
        match event {
            Event::Gap(gap) => {
                meter::gap(&self.address().to_string(), gap.as_str());
                self.gaps.fetch_add(1, Ordering::Relaxed);
                let mut subscription = lock(&self.subscription);
                subscription.gap = Some(*gap);
                match gap {
                    Gap::Disconnected | Gap::Silent => subscription.mode = EventMode::ScanOnly,
                    Gap::NoSubscription => subscription.mode = EventMode::Unsubscribed,
                    Gap::Overflow | Gap::NoWakeUps | Gap::Reloaded => {}
                }
            }
            Event::Anchored | Event::Canary(_) => {
                let mut subscription = lock(&self.subscription);
                subscription.mode = EventMode::Expired;
                subscription.gap = subscription.gap.filter(|gap| *gap == Gap::NoWakeUps);
            }
            _ => {}
        }
    }

    pub(crate) fn mode(&self) -> EventMode {
        lock(&self.subscription).mode
    }

    /// Returns the reason of the current gap, if any.
    pub(crate) fn gap(&self) -> Option<Gap> {
        lock(&self.subscription).gap
    }

    /// Returns the number of gaps so far.
    pub(crate) fn gaps(&self) -> u64 {
        self.gaps.load(Ordering::Relaxed)
    }

    /// Returns the state of its event stream.
    pub(crate) fn known(&self) -> StreamSnapshot {
        *self.known.borrow()
    }

    /// Returns a receiver of changes of this state.
    pub(crate) fn subscribe(&self) -> watch::Receiver<StreamSnapshot> {
        self.known.subscribe()
    }

    /// Requests a sweep of its partitions.
    pub(crate) fn sweep(&self) {
        self.events_flowing.send_modify(|_| {});
    }
}

impl Runtime {
    /// Adds a server that has some of the partitions.
    pub(crate) fn add_node(&self, node: &Arc<NodeState>) {
        lock(&self.nodes.0).push(node.clone());
        self.stream_state.publish_snapshot(|| self.nodes.known());
    }

    /// Removes a server that has no partitions any more.
    pub(crate) fn remove_node(&self, node: &Arc<NodeState>) {
        lock(&self.nodes.0).retain(|one| !Arc::ptr_eq(one, node));
        self.stream_state.publish_snapshot(|| self.nodes.known());
    }

    /// Updates the state of a server's event stream, and publishes it if it has changed.
    pub(crate) fn learn(&self, node: &NodeState, change: impl FnOnce(&mut StreamSnapshot)) {
        let is_news = node.known.send_if_modified(|known| {
            let before = *known;
            change(known);
            *known != before
        });
        if is_news {
            self.stream_state.publish_snapshot(|| self.nodes.known());
        }
    }
}

impl fmt::Debug for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address())
    }
}

/// All servers of a listener.
#[derive(Debug, Default)]
pub(crate) struct Nodes(Mutex<Vec<Arc<NodeState>>>);

impl Nodes {
    pub(crate) fn all(&self) -> Vec<Arc<NodeState>> {
        lock(&self.0).clone()
    }

    /// Returns the combined state of all event streams.
    fn known(&self) -> StreamSnapshot {
        let all = lock(&self.0);
        let mut known = all.iter().map(|node| node.known());
        let first = known.next().unwrap_or_default();
        known.fold(first, StreamSnapshot::and)
    }

    /// Returns the event mode of the server with the least events.
    pub(crate) fn mode(&self) -> EventMode {
        let all = lock(&self.0);
        let any = |mode| all.iter().any(|node| node.mode() == mode);
        match all.len() {
            0 => EventMode::Starting,
            _ if any(EventMode::Unsubscribed) => EventMode::Unsubscribed,
            _ if any(EventMode::ScanOnly) => EventMode::ScanOnly,
            _ if any(EventMode::Starting) => EventMode::Starting,
            _ => EventMode::Expired,
        }
    }
}
