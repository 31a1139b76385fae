//! The servers that keep the timers, behind one interface for every topology.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use crate::address::{Address, Endpoint};
use crate::classify::is_of_unknown_command;
use crate::cluster::Cluster;
use crate::cluster_map::{ClusterMap, slot_of};
use crate::error::{Error, Result};
use crate::sentinel::Sentinels;
use crate::server::Server;
use crate::target::{Endpoints, Target};

/// The distribution of slots over servers. [`Server`] and [`Cluster`] implement it.
pub(crate) trait Layout {
    /// Makes a call at the owner of a slot, and repeats it at the target of a redirect. With `waits`, the call uses the
    /// connection for calls that wait.
    async fn at<T, F>(&self, slot: u16, waits: bool, call: impl Fn(Server) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>;

    /// Sends commands, each about one slot, in one request for each server. Returns the answers in the order of the
    /// commands.
    async fn each(&self, doing: &str, commands: Vec<(u16, Cmd)>) -> Vec<Result<Value>>;

    /// Returns all known servers, each with the lowest slot that it owns. A replica has no slot.
    async fn members(&self) -> Result<Vec<(Server, Option<u16>)>>;

    /// Returns the servers that own slots, each with its lowest slot.
    async fn primaries(&self) -> Result<Vec<(Server, u16)>>;

    /// Returns the known primaries, without asking a server.
    fn known_primaries(&self) -> Vec<Server>;

    /// Returns the servers that have received calls, and whose connections are kept.
    fn connected_servers(&self) -> Vec<Server>;

    /// Asks for the current owners of slots. Returns each owner with the indices of its slots in `slots`; slots without an
    /// owner are left out.
    async fn holders(&self, slots: &[u16]) -> Result<Vec<(Address, Vec<usize>)>>;

    /// Waits until one of these slots is owned by a server other than the given one.
    async fn wait_until_moved(&self, held: &[(Endpoint, u16)]);

    /// Starts logging lost and returned servers.
    fn report(&self);
}

/// The servers, with the connections to them.
#[derive(Clone)]
pub struct Topology(Kind);

#[derive(Clone)]
enum Kind {
    /// One server at a time holds all slots.
    One(Server),
    /// Each server holds some of the slots.
    Cluster(Arc<Cluster>),
}

/// Evaluates an expression with the layout of either kind of topology.
macro_rules! of_layout {
    ($topology:expr, $layout:ident => $answer:expr) => {
        match &$topology.0 {
            Kind::One($layout) => $answer,
            Kind::Cluster($layout) => $answer,
        }
    };
}

impl Topology {
    /// Creates the servers of a target. Connects at the first call; `answer_within` limits the wait for each answer.
    pub fn new(target: &Target, answer_within: Duration) -> Self {
        let access = target.options.clone();
        Self(match &target.endpoints {
            Endpoints::One(endpoint) => {
                Kind::One(Server::at(Address::at(endpoint.clone(), access), answer_within))
            }
            Endpoints::Sentinel { sentinels, master } => {
                let own = target.sentinel_options.clone();
                let sentinels = Sentinels::new(master.clone(), sentinels, access, own);
                Kind::One(Server::with_locator(sentinels, answer_within))
            }
            Endpoints::Cluster(seeds) => Kind::Cluster(Cluster::new(seeds.clone(), access, answer_within)),
        })
    }

    /// Starts logging lost and returned servers. A listener does so, as it waits for them.
    pub fn report(&self) {
        of_layout!(self, layout => layout.report());
    }

    /// Returns the server that holds all slots, unless this is a cluster.
    pub fn only(&self) -> Option<&Server> {
        match &self.0 {
            Kind::One(server) => Some(server),
            Kind::Cluster(_) => None,
        }
    }

    /// Returns the cluster, if this is one.
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        match &self.0 {
            Kind::One(_) => None,
            Kind::Cluster(cluster) => Some(cluster),
        }
    }

    /// Returns the map of the cluster, if this is one.
    pub fn map(&self) -> Option<Arc<ClusterMap>> {
        self.cluster().map(|cluster| cluster.map().borrow().clone())
    }

    /// Returns whether this is a cluster. Keys of different slots then cannot be in one command.
    pub fn is_cluster(&self) -> bool {
        self.cluster().is_some()
    }

    /// Returns the slot of a key; 0 unless this is a cluster.
    pub fn slot_of(&self, key: &[u8]) -> u16 {
        if self.is_cluster() { slot_of(key) } else { 0 }
    }

    /// Makes a call at the owner of a slot. The closure receives the server, and runs again for the target of a redirect.
    ///
    /// # Errors
    /// The error of the call, or an error if no server owns the slot.
    pub async fn at<T, F>(&self, slot: u16, call: impl Fn(Server) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        of_layout!(self, layout => layout.at(slot, false, call).await)
    }

    /// Makes a call at the owner of a slot, on the connection for calls that wait.
    ///
    /// # Errors
    /// The errors of [`at`](Self::at).
    pub async fn at_waiting<T, F>(&self, slot: u16, call: impl Fn(Server) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        of_layout!(self, layout => layout.at(slot, true, call).await)
    }

    /// Sends commands, each about one slot, in one request for each server. Returns the answers in the order of the
    /// commands. A server error fails only its own command.
    pub async fn each(&self, doing: &str, commands: Vec<(u16, Cmd)>) -> Vec<Result<Value>> {
        of_layout!(self, layout => layout.each(doing, commands).await)
    }

    /// Returns one slot of each primary.
    ///
    /// # Errors
    /// The primaries are unknown, and no server names them.
    pub async fn slots(&self) -> Result<Vec<u16>> {
        let primaries = of_layout!(self, layout => layout.primaries().await)?;
        Ok(primaries.into_iter().map(|(_, lowest)| lowest).collect())
    }

    /// Returns the primaries that own slots.
    ///
    /// # Errors
    /// The primaries are unknown, and no server names them.
    pub async fn primaries(&self) -> Result<Vec<Server>> {
        let primaries = of_layout!(self, layout => layout.primaries().await)?;
        Ok(primaries.into_iter().map(|(server, _)| server).collect())
    }

    /// Returns all known servers, including the replicas of a cluster, each with the lowest slot that it owns. A replica has
    /// no slot.
    ///
    /// # Errors
    /// The servers of a cluster are unknown, and no server names them.
    pub async fn servers(&self) -> Result<Vec<(Server, Option<u16>)>> {
        of_layout!(self, layout => layout.members().await)
    }

    /// Asks for the current owners of slots. Returns each owner with the indices of its slots in `slots`; slots without an
    /// owner are left out.
    ///
    /// # Errors
    /// No server names the owners.
    pub async fn holders(&self, slots: &[u16]) -> Result<Vec<(Address, Vec<usize>)>> {
        of_layout!(self, layout => layout.holders(slots).await)
    }

    /// Waits until one of these slots is owned by a server other than the given one.
    pub async fn wait_until_moved(&self, held: &[(Endpoint, u16)]) {
        of_layout!(self, layout => layout.wait_until_moved(held).await);
    }

    /// Returns whether some primary answers, and none is lost. A primary that has not been called yet counts as neither.
    pub fn is_answering(&self) -> bool {
        let primaries = of_layout!(self, layout => layout.known_primaries());
        let outages = || primaries.iter().map(Server::outage);
        outages().any(|one| one.is_answering()) && !outages().any(|one| one.is_lost())
    }

    /// Marks the map of a cluster as stale, as an answer contradicts it.
    pub fn mark_map_stale(&self) {
        if let Some(cluster) = self.cluster() {
            cluster.mark_map_stale();
        }
    }

    /// Returns the number of requests sent; a pipeline is one request.
    pub fn requests(&self) -> u64 {
        of_layout!(self, layout => layout.connected_servers()).iter().map(Server::requests).sum()
    }

    /// Replaces the error of an unknown command if the server is a sentinel. Otherwise returns the error unchanged.
    pub async fn explained(&self, error: Error) -> Error {
        match self.only() {
            Some(server) if is_of_unknown_command(&error) => server.sentinel_error().await.unwrap_or(error),
            _ => error,
        }
    }
}

impl fmt::Debug for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        of_layout!(self, layout => layout.fmt(f))
    }
}
