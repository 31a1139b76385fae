//! The servers that keep the timers, however many there are: the one seam for every topology.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value, pipe};

use crate::address::Address;
use crate::cluster::Cluster;
use crate::error::Result;
use crate::place::Place;
use crate::sentinel::Sentinels;
use crate::server::{Seat, Server};
use crate::slot::slot_of;
use crate::target::{Endpoints, Target};

/// The servers, with the connections to them.
#[derive(Clone)]
pub enum Topology {
    /// One at a time holds everything.
    One(Server),
    /// Each holds some of the slots.
    Cluster(Arc<Cluster>),
}

impl Topology {
    pub fn new(target: &Target, answer_within: Duration) -> Self {
        let one = |place| Self::One(Server::new(&place, answer_within));
        match &target.endpoints {
            Endpoints::One(endpoint) => {
                one(Place::Fixed(Address::at(endpoint.clone(), target.access.clone())))
            }
            Endpoints::Sentinel { sentinels, master } => {
                let (access, own) = (target.access.clone(), target.sentinel_access.clone());
                one(Place::Primary(Arc::new(Sentinels::new(master.clone(), sentinels, access, own))))
            }
            Endpoints::Cluster(seeds) => {
                Self::Cluster(Cluster::new(seeds.clone(), target.access.clone(), answer_within))
            }
        }
    }

    /// Has what becomes of the connections said in the log: somebody waits for them.
    pub fn report(&self) {
        match self {
            Self::One(server) => server.place().outage().report(),
            Self::Cluster(cluster) => cluster.report(),
        }
    }

    /// Whether keys lie on several servers, so that no call may name two of them.
    pub fn are_many(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// The slot of a key, where there are several servers.
    pub fn slot_of(&self, key: &[u8]) -> u16 {
        if self.are_many() { slot_of(key) } else { 0 }
    }

    /// Makes a call where a slot is. It is told where, and made again where that is sent on.
    pub async fn at<T, F>(&self, slot: u16, call: impl Fn(Seat) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        match self {
            Self::One(server) => made_at(&server.seat(), call).await,
            Self::Cluster(cluster) => cluster.at(slot, call).await,
        }
    }

    /// The same on a connection for calls that wait.
    pub async fn at_waiting<T, F>(&self, slot: u16, call: impl Fn(Seat) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        match self {
            Self::One(server) => made_at(&server.seat().waiting(), call).await,
            Self::Cluster(cluster) => cluster.at_waiting(slot, call).await,
        }
    }

    /// Sends commands, each about one slot, in one request to each server; an error of a server is the answer to its own
    /// command alone.
    pub async fn each(&self, doing: &str, commands: Vec<(u16, Cmd)>) -> Vec<Result<Value>> {
        match self {
            Self::One(server) => {
                let mut pipeline = pipe();
                for (_, command) in commands {
                    pipeline.add_command(command);
                }
                let (seat, count) = (server.seat(), pipeline.len());
                let sent = async { Ok(seat.call_each(doing, &pipeline).await) };
                let answers = server.place().believed(seat.trust(), sent).await;
                answers.unwrap_or_else(|error| vec![Err(error); count])
            }
            Self::Cluster(cluster) => cluster.each(doing, &commands).await,
        }
    }

    /// A slot of each primary.
    pub async fn slots(&self) -> Result<Vec<u16>> {
        match self {
            Self::One(_) => Ok(vec![0]),
            Self::Cluster(cluster) => {
                let map = cluster.known_map().await?;
                Ok(map.owners().into_iter().map(|(_, lowest)| lowest).collect())
            }
        }
    }

    /// The primaries that hold keys.
    pub async fn primaries(&self) -> Result<Vec<Server>> {
        match self {
            Self::One(server) => Ok(vec![server.clone()]),
            Self::Cluster(cluster) => {
                let map = cluster.known_map().await?;
                Ok(map.owners().into_iter().map(|(owner, _)| cluster.server(owner)).collect())
            }
        }
    }

    /// All that are known, replicas of a cluster's primaries too.
    pub async fn all(&self) -> Result<Vec<Server>> {
        match self {
            Self::One(server) => Ok(vec![server.clone()]),
            Self::Cluster(cluster) => cluster.members().await,
        }
    }

    /// The same, each with the lowest slot that it holds; none of a replica. One server has all.
    pub async fn servers(&self) -> Result<Vec<(Server, Option<u16>)>> {
        let cluster = match self {
            Self::One(server) => return Ok(vec![(server.clone(), Some(0))]),
            Self::Cluster(cluster) => cluster,
        };
        let map = cluster.known_map().await?;
        let lowest: std::collections::HashMap<_, _> = map.owners().into_iter().collect();
        let members = map.members().map(|member| &member.endpoint);
        Ok(members.map(|at| (cluster.server(at), lowest.get(at).copied())).collect())
    }

    /// Whether some answer, and none is known not to.
    pub fn answer(&self) -> bool {
        match self {
            Self::One(server) => server.place().outage().answers(),
            Self::Cluster(cluster) => {
                let map = cluster.map().borrow().clone();
                let all: Vec<_> = map.primaries().map(|member| cluster.server(&member.endpoint)).collect();
                // There may be primaries that nothing has been asked of.
                all.iter().any(|server| server.place().outage().answers())
                    && !all.iter().any(|server| server.place().outage().is_lost())
            }
        }
    }

    /// Something has shown that slots are held by others than was known.
    pub fn suspect(&self) {
        if let Self::Cluster(cluster) = self {
            cluster.suspect();
        }
    }

    pub fn requests(&self) -> u64 {
        match self {
            Self::One(server) => server.requests(),
            Self::Cluster(cluster) => cluster.servers().iter().map(Server::requests).sum(),
        }
    }
}

async fn made_at<T, F>(seat: &Seat, call: impl Fn(Seat) -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    seat.server().place().believed(seat.trust(), call(seat.clone())).await
}
