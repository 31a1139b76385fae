//! A cluster to throw away, whose nodes come and go.

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

/// How long waiting methods wait.
const CLUSTER_TIMEOUT: Duration = Duration::from_secs(30);

/// A Redis or Valkey Cluster of a test's own, on free ports of 127.0.0.1: three primaries, each
/// with one replica, expired events on. It ends with this value.
///
/// Its nodes can be killed, stopped and started again, roles and slots moved. The binary is that
/// of [`Server`](super::Server).
#[derive(Debug)]
pub struct LocalCluster {
    nodes: Mutex<Vec<LocalNode>>,
    settings: LocalClusterBuilder,
}

impl LocalCluster {
    /// Starts three primaries and a replica of each.
    ///
    /// # Errors
    /// As for [`ClusterBuilder::start`].
    pub async fn start() -> Result<Self> {
        Self::builder().start().await
    }

    /// Settings for a cluster that differs from that.
    pub fn builder() -> LocalClusterBuilder {
        LocalClusterBuilder::new()
    }

    pub(super) fn new(nodes: Vec<LocalNode>, settings: LocalClusterBuilder) -> Self {
        Self { nodes: Mutex::new(nodes), settings }
    }

    /// All nodes, also those that have ended; at first the primaries, in the order of their slots,
    /// then the replicas, in the order of their primaries.
    pub fn nodes(&self) -> Vec<LocalNode> {
        lock(&self.nodes).clone()
    }

    /// Where to connect: all nodes, without a password; over TLS if they are configured with a `tls-cert-file`.
    pub fn url(&self) -> String {
        let (nodes, host) = (self.nodes(), self.settings.host.as_deref().unwrap_or("127.0.0.1"));
        let all: Vec<_> = nodes.iter().map(|node| format!("{host}:{}", node.connect_port())).collect();
        format!("{}+cluster://{}/", nodes.first().map_or("redis", LocalNode::scheme), all.join(","))
    }

    /// Waits until each running node serves, all agree on who has which slots, and replicas are
    /// linked to their primaries.
    ///
    /// # Errors
    /// When that is not so within half a minute; the message says what is missing.
    pub async fn wait_until_ok(&self) -> Result<()> {
        poll_until(CLUSTER_TIMEOUT, "the cluster", async || view::check(&self.nodes()).await).await
    }

    /// A node that runs.
    fn any(&self) -> Result<LocalNode> {
        self.nodes()
            .into_iter()
            .find(LocalNode::is_running)
            .ok_or_else(|| failed("no node of the cluster runs"))
    }
}

impl Drop for LocalCluster {
    fn drop(&mut self) {
        // Those that tests still hold end, too.
        self.nodes().iter().for_each(LocalNode::kill);
    }
}

impl LocalCluster {
    /// Starts one more node, a primary without slots, and waits until all know it.
    ///
    /// # Errors
    /// When it does not start, or the others do not know it within half a minute.
    pub async fn add_node(&self) -> Result<LocalNode> {
        let node = LocalNode::start_in_cluster_mode(self.settings.node_spec()?).await?;
        node.execute_all(&[builder::meet(&self.any()?)]).await?;
        lock(&self.nodes).push(node.clone());
        poll_until(CLUSTER_TIMEOUT, "the new node to be known", async || {
            builder::all_know_all(&self.nodes()).await
        })
        .await?;
        self.wait_until_ok().await?;
        Ok(node)
    }

    /// Starts one more replica of this primary, and waits until it is linked.
    ///
    /// # Errors
    /// As for [`add_node`](Self::add_node).
    pub async fn add_replica_of(&self, primary: &LocalNode) -> Result<LocalNode> {
        let node = self.add_node().await?;
        builder::follow(&node, primary).await?;
        self.wait_until_ok().await?;
        Ok(node)
    }

    /// Has all running nodes forget this one, and ends it. Move its slots first.
    ///
    /// # Errors
    /// When a node refuses, as its own replicas do.
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
