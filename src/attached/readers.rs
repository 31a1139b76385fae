//! The readers of all servers: which of them is asked about a key, is for the owner of the key's slot to say.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::attached::request::Request;
use crate::connection::{Endpoint, Topology};
use crate::lock::lock;
use crate::wire::NodeId;

/// All of them, shared by those who ask.
#[derive(Clone)]
pub(crate) struct Readers(Arc<Shared>);

struct Shared {
    topology: Topology,
    all: Mutex<Vec<Entry>>,
}

#[derive(Clone)]
struct Entry {
    node: NodeId,
    /// None: it is the only one.
    endpoint: Option<Endpoint>,
    requests: mpsc::Sender<Request>,
}

impl Readers {
    pub(super) fn new(topology: &Topology) -> Self {
        Self(Arc::new(Shared { topology: topology.clone(), all: Mutex::default() }))
    }

    pub(super) fn add(&self, node: NodeId, endpoint: Option<Endpoint>, requests: mpsc::Sender<Request>) {
        let mut all = lock(&self.0.all);
        // One that has ended is nobody's any more.
        all.retain(|one| !one.requests.is_closed());
        all.push(Entry { node, endpoint, requests });
    }

    /// A reader hears another server from now on.
    pub(super) fn rename(&self, reader: &mpsc::Sender<Request>, node: NodeId) {
        let mut all = lock(&self.0.all);
        let its = all.iter_mut().filter(|one| one.requests.same_channel(reader));
        its.for_each(|one| one.node = node);
    }

    /// That of this server: the last, as one that heard it at an address which it has left may not have ended yet.
    pub(super) fn of_node(&self, node: NodeId) -> Option<mpsc::Sender<Request>> {
        let all = lock(&self.0.all);
        let live = |one: &&Entry| one.node == node && !one.requests.is_closed();
        all.iter().rfind(live).map(|one| one.requests.clone())
    }

    /// What is to be asked of each, by the keys of these. What nobody has at present is left out: it comes again.
    pub(super) fn share_out<T>(
        &self,
        all: Vec<T>,
        key: impl Fn(&T) -> &Bytes,
    ) -> Vec<(mpsc::Sender<Request>, Vec<T>)> {
        let entries = lock(&self.0.all).clone();
        let Topology::Cluster(cluster) = &self.0.topology else {
            return entries.into_iter().next().map(|one| (one.requests, all)).into_iter().collect();
        };
        let map = cluster.map().borrow().clone();
        let mut shares: Vec<Vec<T>> = entries.iter().map(|_| Vec::new()).collect();
        for one in all {
            let owner = map.owner(self.0.topology.slot_of(key(&one)));
            let place = entries.iter().rposition(|entry| owner.is_some() && entry.endpoint.as_ref() == owner);
            if let Some(place) = place {
                shares[place].push(one);
            }
        }
        let requests = entries.into_iter().map(|entry| entry.requests);
        requests.zip(shares).filter(|(_, share)| !share.is_empty()).collect()
    }
}
