//! The servers that keep the timers, however many there are: the one seam for every topology.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value, pipe};

use crate::connection::address::Address;
use crate::connection::cluster::Cluster;
use crate::connection::endpoint::Endpoint;
use crate::connection::place::Place;
use crate::connection::sentinel::Sentinels;
use crate::connection::server::{Seat, Server};
use crate::connection::slot::slot_of;
use crate::error::Result;

/// How the servers are found. Nothing is connected.
#[derive(Clone)]
pub(crate) enum Topology {
    /// One server.
    One(Address),
    /// Whichever server the sentinels name.
    Sentinel(Arc<Sentinels>),
    /// The nodes of a cluster, by some of them, and how all are logged in to.
    Cluster(Vec<Endpoint>, Address),
}

impl Topology {
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let Some((scheme, rest)) = url.split_once("://") else { return Address::parse(url).map(Self::One) };
        let (kind, rest) = match scheme.split_once('+') {
            Some((_, kind @ ("cluster" | "sentinel"))) => (kind, rest),
            _ => return Address::parse(url).map(Self::One),
        };
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = hosts
            .rsplit_once('@')
            .map_or((String::new(), hosts), |(login, hosts)| (format!("{login}@"), hosts));
        let asked = Endpoint::Tcp { host: "x".into(), port: 1 };
        let seeds: Vec<_> = hosts.split(',').filter_map(|host| Endpoint::announced(host, &asked)).collect();
        let login =
            Address::parse(&format!("redis://{login}{}/", hosts.split(',').next().unwrap_or_default()))?;
        Ok(match kind {
            "cluster" => Self::Cluster(seeds, login),
            _ => {
                let own =
                    Address::parse(&format!("redis://{}/", hosts.split(',').next().unwrap_or_default()))?;
                Self::Sentinel(Arc::new(Sentinels::new(path.to_owned(), &seeds, login, own)))
            }
        })
    }

    /// How all servers are logged in to; of a single one, where it is, too.
    pub(crate) fn login(&self) -> Address {
        match self {
            Self::One(address) | Self::Cluster(_, address) => address.clone(),
            Self::Sentinel(sentinels) => sentinels.present(),
        }
    }

    /// The same with other logins, or streams.
    pub(crate) fn with_login(self, change: impl Fn(Address) -> Address) -> Self {
        match self {
            Self::One(address) => Self::One(change(address)),
            Self::Cluster(seeds, address) => Self::Cluster(seeds, change(address)),
            Self::Sentinel(sentinels) => Self::Sentinel(sentinels),
        }
    }
}

impl fmt::Display for Topology {
    /// Without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(address) => address.fmt(f),
            Self::Sentinel(sentinels) => write!(f, "{sentinels:?}"),
            Self::Cluster(seeds, _) => {
                let seeds: Vec<_> = seeds.iter().map(Endpoint::to_string).collect();
                f.write_str(&seeds.join(","))
            }
        }
    }
}

/// The servers, with the connections to them.
#[derive(Clone)]
pub(crate) enum Servers {
    /// One at a time holds everything.
    One(Server),
    /// Each holds some of the slots.
    Cluster(Arc<Cluster>),
}

impl Servers {
    pub(crate) fn new(topology: &Topology, answer_within: Duration) -> Self {
        let one = |place| Self::One(Server::new(&place, answer_within));
        match topology {
            Topology::One(address) => one(Place::Fixed(address.clone())),
            // Connections live on the runtime on which they were opened.
            Topology::Sentinel(sentinels) => one(Place::Primary(Arc::new(sentinels.apart()))),
            Topology::Cluster(seeds, login) => {
                Self::Cluster(Arc::new(Cluster::new(seeds.clone(), login.clone(), answer_within)))
            }
        }
    }

    /// Whether keys lie on several servers, so that no call may name two of them.
    pub(crate) fn are_many(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// The slot of a key, where there are several servers.
    pub(crate) fn slot_of(&self, key: &[u8]) -> u16 {
        if self.are_many() { slot_of(key) } else { 0 }
    }

    /// Makes a call where a slot is. It is told where, and made again where that is sent on.
    pub(crate) async fn at<T, F>(&self, slot: u16, call: impl Fn(Seat) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        match self {
            Self::One(server) => call(server.seat()).await,
            Self::Cluster(cluster) => cluster.at(slot, call).await,
        }
    }

    /// Sends commands, each about one slot, in one request to each server; an error of a server is the answer to its own
    /// command alone.
    pub(crate) async fn each(&self, doing: &str, commands: Vec<(u16, Cmd)>) -> Vec<Result<Value>> {
        match self {
            Self::One(server) => {
                let mut pipeline = pipe();
                for (_, command) in commands {
                    pipeline.add_command(command);
                }
                server.seat().call_each(doing, &pipeline).await
            }
            Self::Cluster(cluster) => cluster.each(doing, &commands).await,
        }
    }

    /// All that are known, replicas of a cluster's primaries too.
    pub(crate) async fn all(&self) -> Result<Vec<Server>> {
        match self {
            Self::One(server) => Ok(vec![server.clone()]),
            Self::Cluster(cluster) => cluster.members().await,
        }
    }

    /// Whether some answer, and none is known not to.
    pub(crate) fn answer(&self) -> bool {
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
    pub(crate) fn suspect(&self) {
        if let Self::Cluster(cluster) = self {
            cluster.suspect();
        }
    }

    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn requests(&self) -> u64 {
        match self {
            Self::One(server) => server.requests(),
            Self::Cluster(cluster) => cluster.servers().iter().map(Server::requests).sum(),
        }
    }
}
