//! A cluster for tests.

mod builder;
mod roles;
mod slots;
mod view;

use std::sync::Mutex;
use std::time::Duration;

use futures::future::try_join_all;

use crate::servers::{LocalNode, failed, poll_until};
use keylapse::Result;
use keylapse_connection::lock::lock;

pub use builder::LocalClusterBuilder;
pub use slots::SlotMove;

/// The limit of methods that wait.
const CLUSTER_TIMEOUT: Duration = Duration::from_secs(30);

/// A Redis Cluster or Valkey cluster for one test: three primaries with one replica each, on free ports of 127.0.0.1.
///
/// The nodes publish expired events. All nodes end when this value is dropped. Tests can kill, suspend and restart nodes,
/// and move roles and slots. The nodes run the binary of [`LocalServer`](super::LocalServer).
#[derive(Debug)]
pub struct LocalCluster {
    nodes: Mutex<Vec<LocalNode>>,
    settings: LocalClusterBuilder,
}

impl LocalCluster {
    /// Starts three primaries and a replica of each.
    ///
    /// # Errors
    /// Returns the errors of [`LocalClusterBuilder::start`].
    pub async fn start() -> Result<Self> {
        Self::builder().start().await
    }

    /// Returns settings for another cluster.
    pub fn builder() -> LocalClusterBuilder {
        LocalClusterBuilder::new()
    }

    pub(super) fn new(nodes: Vec<LocalNode>, settings: LocalClusterBuilder) -> Self {
        Self { nodes: Mutex::new(nodes), settings }
    }

    /// Returns all nodes, even those that were killed. At the start, the primaries come first, in the order of their slots.
    /// Their replicas follow, in the order of the primaries.
    pub fn nodes(&self) -> Vec<LocalNode> {
        lock(&self.nodes).clone()
    }

    /// Returns the URL of the cluster: all nodes, without a password. It uses TLS if the nodes are configured with a
    /// `tls-cert-file`.
    pub fn url(&self) -> String {
        let (nodes, host) = (self.nodes(), self.settings.host.as_deref().unwrap_or("127.0.0.1"));
        let all: Vec<_> = nodes.iter().map(|node| format!("{host}:{}", node.connect_port())).collect();
        format!("{}+cluster://{}/", nodes.first().map_or("redis", LocalNode::scheme), all.join(","))
    }

    /// Waits until each running node serves commands, all agree on the owners of slots, and replicas are in sync with their
    /// primaries.
    ///
    /// # Errors
    /// Returns an error with the missing condition after 30 s.
    pub async fn wait_until_ok(&self) -> Result<()> {
        poll_until(CLUSTER_TIMEOUT, "the cluster to be ready", async || view::check(&self.nodes()).await)
            .await
    }

    /// Returns a running node.
    fn any(&self) -> Result<LocalNode> {
        self.nodes()
            .into_iter()
            .find(LocalNode::is_running)
            .ok_or_else(|| failed("no node of the cluster runs"))
    }
}

impl Drop for LocalCluster {
    fn drop(&mut self) {
        // Nodes that tests still hold end, too.
        self.nodes().iter().for_each(LocalNode::kill);
    }
}

impl LocalCluster {
    /// Starts another node, a primary without slots, and waits until all nodes have found it.
    ///
    /// # Errors
    /// Returns an error if the node does not start, or the others do not find it within 30 s.
    pub async fn add_node(&self) -> Result<LocalNode> {
        let node = LocalNode::start_in_cluster_mode(self.settings.node_spec()?).await?;
        node.execute_all(&[builder::meet(&self.any()?)]).await?;
        lock(&self.nodes).push(node.clone());
        poll_until(CLUSTER_TIMEOUT, "the nodes to find the new one", async || {
            builder::check_introductions(&self.nodes()).await
        })
        .await?;
        self.wait_until_ok().await?;
        Ok(node)
    }

    /// Starts another replica of this primary, and waits until it is in sync.
    ///
    /// # Errors
    /// Returns the errors of [`add_node`](Self::add_node), or an error if the replica is not in sync within 30 s.
    pub async fn add_replica_of(&self, primary: &LocalNode) -> Result<LocalNode> {
        let node = self.add_node().await?;
        builder::follow(&node, primary).await?;
        self.wait_until_ok().await?;
        Ok(node)
    }

    /// Removes a node from the cluster (`CLUSTER FORGET`), and ends it. Move its slots first.
    ///
    /// # Errors
    /// Returns an error if a node refuses. The node's own replicas do.
    pub async fn remove_node(&self, node: &LocalNode) -> Result<()> {
        let others: Vec<_> = self.nodes().into_iter().filter(|other| other != node).collect();
        let command = [format!("CLUSTER FORGET {}", node.id().unwrap_or_default())];
        try_join_all(
            others.iter().filter(|other| other.is_running()).map(|other| other.execute_all(&command)),
        )
        .await?;
        node.kill();
        *lock(&self.nodes) = others;
        Ok(())
    }
}
