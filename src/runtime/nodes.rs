//! The servers that a listener listens to, and what is known of each.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use crate::connection::{Address, Server};
use crate::events::{Event, Gap, Share};
use crate::lock::lock;
use crate::runtime::{EventMode, Known, Runtime};
use crate::stats::meter;
use crate::wire::NodeId;
use crate::wire::names::canary;

/// One server: the only one, or one of a cluster's primaries.
pub(crate) struct NodeState {
    server: Server,
    /// Its name among several.
    name: NodeId,
    /// What it has of the work.
    pub(crate) share: watch::Sender<Share>,
    /// Whether its events flow, as far as canaries tell. Said anew whenever something may have been missed.
    pub(crate) calm: watch::Sender<bool>,
    /// What is known of its stream, for attached topics.
    known: watch::Sender<Known>,
    heard: Mutex<Heard>,
    gaps: AtomicU64,
}

/// What is known of its subscription.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    mode: EventMode,
    /// Why something may have been missed, until that is over.
    gap: Option<Gap>,
}

impl NodeState {
    pub(crate) fn new(server: Server, name: NodeId, share: Share) -> Arc<Self> {
        Arc::new(Self {
            server,
            name,
            share: watch::Sender::new(share),
            calm: watch::Sender::default(),
            known: watch::Sender::default(),
            heard: Mutex::default(),
            gaps: AtomicU64::default(),
        })
    }

    /// The only server, which holds everything.
    pub(crate) fn only(server: &Server, runtime: &Runtime) -> Arc<Self> {
        let canaries = Some(canary(&runtime.client.namespace, 0));
        let share = Share { partitions: (0..runtime.partitions.len()).collect(), canaries };
        Self::new(server.clone(), NodeId::NONE, share)
    }

    /// The same of a listener on a test bed.
    #[cfg(test)]
    pub(crate) fn of(runtime: &Runtime) -> Arc<Self> {
        let server = runtime.client.store.topology().only().expect("a test bed is one server");
        Self::only(server, runtime)
    }

    /// Nothing, where there is one.
    pub(crate) fn name(&self) -> NodeId {
        self.name
    }

    /// Where it is at present.
    pub(crate) fn address(&self) -> Address {
        self.server.present()
    }

    /// Notes what an event says of its subscription.
    pub(crate) fn note(&self, event: &Event) {
        match event {
            Event::Gap(gap) => {
                meter::gap(&self.address().to_string(), gap.as_str());
                self.gaps.fetch_add(1, Ordering::Relaxed);
                let mut heard = lock(&self.heard);
                heard.gap = Some(*gap);
                match gap {
                    Gap::Disconnected | Gap::Silent => heard.mode = EventMode::Blind,
                    Gap::NoSubscription => heard.mode = EventMode::Unsubscribed,
                    Gap::Overflow | Gap::NoWakeUps | Gap::Reloaded => {}
                }
            }
            Event::Anchored | Event::Canary(_) => {
                let mut heard = lock(&self.heard);
                heard.mode = EventMode::Expired;
                heard.gap = heard.gap.filter(|gap| *gap == Gap::NoWakeUps);
            }
            _ => {}
        }
    }

    pub(crate) fn mode(&self) -> EventMode {
        lock(&self.heard).mode
    }

    /// Why something may have been missed, and may still be.
    pub(crate) fn gap(&self) -> Option<Gap> {
        lock(&self.heard).gap
    }

    /// How often something may have been missed.
    pub(crate) fn gaps(&self) -> u64 {
        self.gaps.load(Ordering::Relaxed)
    }

    /// What is known of its stream.
    pub(crate) fn known(&self) -> Known {
        *self.known.borrow()
    }

    /// For those who wait for news of it.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Known> {
        self.known.subscribe()
    }

    /// Has it swept at once.
    pub(crate) fn sweep(&self) {
        self.calm.send_modify(|_| {});
    }
}

impl Runtime {
    /// From now on a server holds some of the work.
    pub(crate) fn add_node(&self, node: &Arc<NodeState>) {
        lock(&self.nodes.0).push(node.clone());
        self.stream_state.tell(|| self.nodes.known());
    }

    /// And now it does not any more.
    pub(crate) fn remove_node(&self, node: &Arc<NodeState>) {
        lock(&self.nodes.0).retain(|one| !Arc::ptr_eq(one, node));
        self.stream_state.tell(|| self.nodes.known());
    }

    /// Changes what is known of the stream of a server, and tells of it where that is news.
    pub(crate) fn learn(&self, node: &NodeState, change: impl FnOnce(&mut Known)) {
        let is_news = node.known.send_if_modified(|known| {
            let before = *known;
            change(known);
            *known != before
        });
        if is_news {
            self.stream_state.tell(|| self.nodes.known());
        }
    }
}

impl fmt::Debug for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address())
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Nodes(Mutex<Vec<Arc<NodeState>>>);

impl Nodes {
    pub(crate) fn all(&self) -> Vec<Arc<NodeState>> {
        lock(&self.0).clone()
    }

    /// What is known of all their streams together.
    fn known(&self) -> Known {
        let all = lock(&self.0);
        let mut known = all.iter().map(|node| node.known());
        let first = known.next().unwrap_or_default();
        known.fold(first, Known::and)
    }

    /// What is heard of expired keys on all of them: what is heard on the one that tells least.
    pub(crate) fn mode(&self) -> EventMode {
        let all = lock(&self.0);
        let any = |mode| all.iter().any(|node| node.mode() == mode);
        match all.len() {
            0 => EventMode::Starting,
            _ if any(EventMode::Unsubscribed) => EventMode::Unsubscribed,
            _ if any(EventMode::Blind) => EventMode::Blind,
            _ if any(EventMode::Starting) => EventMode::Starting,
            _ => EventMode::Expired,
        }
    }
}
