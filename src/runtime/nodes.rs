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

/// The state of the only server, or of a node of a cluster.
pub(crate) struct NodeState {
    server: Server,
    /// The ID of a cluster node, for attached topics. Empty without attached topics, and outside of a cluster.
    name: NodeId,
    /// The partitions that the server has, and its heartbeat counter.
    pub(crate) assignment: watch::Sender<NodeAssignment>,
    /// True while heartbeat keys prove that events arrive. It is published again, even unchanged, when a sweep is
    /// needed.
    pub(crate) events_flowing: watch::Sender<bool>,
    /// The state of its event stream, for attached topics. The reader of attached keys updates it.
    stream: watch::Sender<StreamSnapshot>,
    subscription: Mutex<SubscriptionHealth>,
    gaps: AtomicU64,
}

/// The state of a subscription, as its own events show it.
#[derive(Clone, Copy, Debug, Default)]
struct SubscriptionHealth {
    mode: EventMode,
    /// The reason of the current gap, if any.
    gap: Option<Gap>,
}

impl NodeState {
    pub(crate) fn new(server: Server, name: NodeId, assignment: NodeAssignment) -> Arc<Self> {
        Arc::new(Self {
            server,
            name,
            assignment: watch::Sender::new(assignment),
            events_flowing: watch::Sender::default(),
            stream: watch::Sender::default(),
            subscription: Mutex::default(),
            gaps: AtomicU64::default(),
        })
    }

    /// Creates the state of the only server, which has all partitions.
    pub(crate) fn of_only_server(server: &Server, runtime: &Runtime) -> Arc<Self> {
        let canaries = Some(canary(&runtime.client.namespace, 0));
        let assignment = NodeAssignment { partitions: (0..runtime.partitions.len()).collect(), canaries };
        Self::new(server.clone(), NodeId::NONE, assignment)
    }

    /// Creates the state of the only server of a test bed.
    #[cfg(test)]
    pub(crate) fn of(runtime: &Runtime) -> Arc<Self> {
        let server = runtime.client.store.topology().only().expect("a test bed must have one server");
        Self::of_only_server(server, runtime)
    }

    pub(crate) fn name(&self) -> NodeId {
        self.name
    }

    /// Returns the server's current address.
    pub(crate) fn address(&self) -> Address {
        self.server.last_address()
    }

    /// Updates the state of the subscription from an event.
    pub(crate) fn note_event(&self, event: &Event) {
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

    /// Returns the event mode: [`EventMode::Expired`] if expiries arrive. Other modes with events belong to attached topics.
    pub(crate) fn mode(&self) -> EventMode {
        lock(&self.subscription).mode
    }

    /// Returns the reason of the current gap, if any.
    pub(crate) fn gap(&self) -> Option<Gap> {
        lock(&self.subscription).gap
    }

    /// Returns the number of reported gaps so far. While no heartbeats arrive, each missing one is reported as a gap.
    pub(crate) fn gaps(&self) -> u64 {
        self.gaps.load(Ordering::Relaxed)
    }

    pub(crate) fn stream_snapshot(&self) -> StreamSnapshot {
        *self.stream.borrow()
    }

    /// Returns a receiver of changes of the stream's state.
    pub(crate) fn subscribe_stream(&self) -> watch::Receiver<StreamSnapshot> {
        self.stream.subscribe()
    }

    /// Requests a sweep of its partitions.
    pub(crate) fn request_sweep(&self) {
        self.events_flowing.send_modify(|_| {});
    }
}

impl Runtime {
    /// Adds a server that holds slots, or the only server.
    pub(crate) fn add_node(&self, node: &Arc<NodeState>) {
        lock(&self.nodes.0).push(node.clone());
        self.stream_state.publish_snapshot(|| self.nodes.combined_stream());
    }

    /// Removes a server that holds no more slots.
    pub(crate) fn remove_node(&self, node: &Arc<NodeState>) {
        lock(&self.nodes.0).retain(|one| !Arc::ptr_eq(one, node));
        self.stream_state.publish_snapshot(|| self.nodes.combined_stream());
    }

    /// Changes the state of a server's event stream. If that changes anything, publishes the combined state.
    pub(crate) fn update_stream(&self, node: &NodeState, change: impl FnOnce(&mut StreamSnapshot)) {
        let is_news = node.stream.send_if_modified(|known| {
            let before = *known;
            change(known);
            *known != before
        });
        if is_news {
            self.stream_state.publish_snapshot(|| self.nodes.combined_stream());
        }
    }
}

impl fmt::Debug for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address())
    }
}

/// The servers that hold slots: the only server, or the primaries of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Nodes(Mutex<Vec<Arc<NodeState>>>);

impl Nodes {
    pub(crate) fn all(&self) -> Vec<Arc<NodeState>> {
        lock(&self.0).clone()
    }

    /// Returns the combined state of all event streams.
    fn combined_stream(&self) -> StreamSnapshot {
        let all = lock(&self.0);
        let mut known = all.iter().map(|node| node.stream_snapshot());
        let first = known.next().unwrap_or_default();
        known.fold(first, StreamSnapshot::combine)
    }

    /// Returns the event mode of the server with the fewest events.
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
