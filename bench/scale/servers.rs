//! The servers of one arrangement.

use keylapse_bench::Fault;
use keylapse_testing::{LocalCluster, LocalServer};

/// They end with this value.
pub(crate) enum Servers {
    /// A server alone.
    One(LocalServer),
    /// A cluster, without replicas.
    Several(LocalCluster),
}

impl Servers {
    /// So many primaries; none: a server alone.
    pub(crate) async fn start(primaries: usize) -> Result<Self, Fault> {
        Ok(match primaries {
            0 => Self::One(LocalServer::start().await?),
            count => {
                Self::Several(LocalCluster::builder().primaries(count).replicas_per_primary(0).start().await?)
            }
        })
    }

    /// Where programs connect.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::One(server) => server.url(),
            Self::Several(cluster) => cluster.url(),
        }
    }

    /// Where each of them is asked about itself.
    pub(crate) fn each(&self) -> Vec<String> {
        match self {
            Self::One(server) => vec![server.url()],
            Self::Several(cluster) => cluster.nodes().iter().map(keylapse_testing::LocalNode::url).collect(),
        }
    }
}
