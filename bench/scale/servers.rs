//! The servers of one arrangement.

use keylapse_bench::Fault;
use keylapse_testing::{LocalCluster, LocalServer};

/// Servers that stop when this value is dropped.
pub(crate) enum Servers {
    /// A single server.
    One(LocalServer),
    /// A cluster, without replicas.
    Several(LocalCluster),
}

impl Servers {
    /// Starts this many primaries, or a single server if zero.
    pub(crate) async fn start(primaries: usize) -> Result<Self, Fault> {
        Ok(match primaries {
            0 => Self::One(LocalServer::start().await?),
            count => {
                Self::Several(LocalCluster::builder().primaries(count).replicas_per_primary(0).start().await?)
            }
        })
    }

    /// Returns the URL that programs connect to.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::One(server) => server.url(),
            Self::Several(cluster) => cluster.url(),
        }
    }

    /// Returns the URL of each server.
    pub(crate) fn each(&self) -> Vec<String> {
        match self {
            Self::One(server) => vec![server.url()],
            Self::Several(cluster) => cluster.nodes().iter().map(keylapse_testing::LocalNode::url).collect(),
        }
    }
}
