//! The servers that keep the timers, however many there are: the one seam for every topology.

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

/// How slots lie on servers. A topology is a file that implements this.
pub(crate) trait Layout {
    /// Makes a call where a slot is, and again where that is sent on; if `waits`, on a connection for calls that wait.
    async fn at<T, F>(&self, slot: u16, waits: bool, call: impl Fn(Server) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>;

    /// Sends commands, each about one slot, in one request to each server.
    async fn each(&self, doing: &str, commands: Vec<(u16, Cmd)>) -> Vec<Result<Value>>;

    /// All servers that are known, each with the lowest slot that it holds; none of a replica.
    async fn members(&self) -> Result<Vec<(Server, Option<u16>)>>;

    /// The servers that hold slots, each with the lowest.
    async fn primaries(&self) -> Result<Vec<(Server, u16)>>;

    /// The primaries as far as they are known, without asking.
    fn known_primaries(&self) -> Vec<Server>;

    /// Those to which calls were made, and whose connections are kept.
    fn called(&self) -> Vec<Server>;

    /// Asks who holds these slots now, given by their places in the list. Those that nobody holds are left out.
    async fn holders(&self, slots: &[u16]) -> Result<Vec<(Address, Vec<usize>)>>;

    /// Returns when one of these slots is held elsewhere.
    async fn moved(&self, held: &[(Endpoint, u16)]);

    /// From now on the losses and returns of servers are logged.
    fn report(&self);
}

/// The servers, with the connections to them.
#[derive(Clone)]
pub struct Topology(Kind);

#[derive(Clone)]
enum Kind {
    /// One at a time holds everything.
    One(Server),
    /// Each holds some of the slots.
    Cluster(Arc<Cluster>),
}

/// Asks the one that it is.
macro_rules! of_layout {
    ($topology:expr, $layout:ident => $answer:expr) => {
        match &$topology.0 {
            Kind::One($layout) => $answer,
            Kind::Cluster($layout) => $answer,
        }
    };
}

impl Topology {
    /// The servers that were said. Nothing is connected before it is needed.
    pub fn new(target: &Target, answer_within: Duration) -> Self {
        let access = target.access.clone();
        Self(match &target.endpoints {
            Endpoints::One(endpoint) => {
                Kind::One(Server::at(Address::at(endpoint.clone(), access), answer_within))
            }
            Endpoints::Sentinel { sentinels, master } => {
                let own = target.sentinel_access.clone();
                let sentinels = Sentinels::new(master.clone(), sentinels, access, own);
                Kind::One(Server::found_by(sentinels, answer_within))
            }
            Endpoints::Cluster(seeds) => Kind::Cluster(Cluster::new(seeds.clone(), access, answer_within)),
        })
    }

    /// From now on the losses and returns of servers are logged: somebody waits for them.
    pub fn report(&self) {
        of_layout!(self, layout => layout.report());
    }

    /// The server, where one at a time has everything.
    pub fn only(&self) -> Option<&Server> {
        match &self.0 {
            Kind::One(server) => Some(server),
            Kind::Cluster(_) => None,
        }
    }

    /// The cluster, where it is one.
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        match &self.0 {
            Kind::One(_) => None,
            Kind::Cluster(cluster) => Some(cluster),
        }
    }

    /// Returns the owners of the slots, where there are several servers.
    pub fn map(&self) -> Option<Arc<ClusterMap>> {
        self.cluster().map(|cluster| cluster.map().borrow().clone())
    }

    /// Returns whether keys lie on several servers, so that no call may name two of them.
    pub fn are_many(&self) -> bool {
        self.cluster().is_some()
    }

    /// The slot of a key, where there are several servers.
    pub fn slot_of(&self, key: &[u8]) -> u16 {
        if self.are_many() { slot_of(key) } else { 0 }
    }

    /// Makes a call where a slot is. The call gets the server, and is made again at another where that is sent on.
    ///
    /// # Errors
    /// That of the call, or that nobody holds the slot.
    pub async fn at<T, F>(&self, slot: u16, call: impl Fn(Server) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        of_layout!(self, layout => layout.at(slot, false, call).await)
    }

    /// Makes a call where a slot is, on a connection for calls that wait.
    ///
    /// # Errors
    /// As for [`at`](Self::at).
    pub async fn at_waiting<T, F>(&self, slot: u16, call: impl Fn(Server) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        of_layout!(self, layout => layout.at(slot, true, call).await)
    }

    /// Sends commands, each about one slot, in one request to each server; an error of a server is the answer to its own
    /// command alone.
    pub async fn each(&self, doing: &str, commands: Vec<(u16, Cmd)>) -> Vec<Result<Value>> {
        of_layout!(self, layout => layout.each(doing, commands).await)
    }

    /// A slot of each primary.
    ///
    /// # Errors
    /// When nobody says who the primaries are.
    pub async fn slots(&self) -> Result<Vec<u16>> {
        let primaries = of_layout!(self, layout => layout.primaries().await)?;
        Ok(primaries.into_iter().map(|(_, lowest)| lowest).collect())
    }

    /// The primaries that hold keys.
    ///
    /// # Errors
    /// When nobody says who they are.
    pub async fn primaries(&self) -> Result<Vec<Server>> {
        let primaries = of_layout!(self, layout => layout.primaries().await)?;
        Ok(primaries.into_iter().map(|(server, _)| server).collect())
    }

    /// All that are known, replicas of a cluster's primaries too, each with the lowest slot that it holds; none of a
    /// replica. One server has all.
    ///
    /// # Errors
    /// When nobody says which servers there are.
    pub async fn servers(&self) -> Result<Vec<(Server, Option<u16>)>> {
        of_layout!(self, layout => layout.members().await)
    }

    /// Asks who holds these slots now, given by their places in the list. Those that nobody holds are left out.
    ///
    /// # Errors
    /// When nobody says who holds them.
    pub async fn holders(&self, slots: &[u16]) -> Result<Vec<(Address, Vec<usize>)>> {
        of_layout!(self, layout => layout.holders(slots).await)
    }

    /// Returns when one of these slots is held elsewhere.
    pub async fn moved(&self, held: &[(Endpoint, u16)]) {
        of_layout!(self, layout => layout.moved(held).await);
    }

    /// Returns whether some answer, and none is known not to. There may be primaries that nothing has been asked of.
    pub fn answer(&self) -> bool {
        let primaries = of_layout!(self, layout => layout.known_primaries());
        let outages = || primaries.iter().map(Server::outage);
        outages().any(|one| one.answers()) && !outages().any(|one| one.is_lost())
    }

    /// Something has shown that slots are held by others than was known.
    pub fn suspect(&self) {
        if let Some(cluster) = self.cluster() {
            cluster.suspect();
        }
    }

    /// Returns how many requests (pipelines count once) have been sent.
    pub fn requests(&self) -> u64 {
        of_layout!(self, layout => layout.called()).iter().map(Server::requests).sum()
    }

    /// Returns the same error, or a better one where a sentinel was taken for a server: it has none of the commands.
    pub async fn explained(&self, error: Error) -> Error {
        match self.only() {
            Some(server) if is_of_unknown_command(&error) => server.as_sentinel().await.unwrap_or(error),
            _ => error,
        }
    }
}

impl fmt::Debug for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        of_layout!(self, layout => layout.fmt(f))
    }
}
