//! A cluster to throw away.

mod builder;
mod epochs;
mod form;
mod health;
mod members;
mod roles;
mod slots;
mod view;

use std::sync::Mutex;
use std::time::Duration;

use crate::servers::until::until;
use crate::servers::{Node, failed};
use keylapse::Result;
use keylapse_connection::lock::lock;

pub use builder::ClusterBuilder;
pub use slots::SlotMove;

/// How long waiting methods wait.
const PATIENCE: Duration = Duration::from_secs(30);

/// A Redis or Valkey Cluster of a test's own, on free ports of 127.0.0.1: three primaries, each
/// with one replica, expired events on. It ends with this value.
///
/// Its nodes can be killed, stopped and started again, roles and slots moved. The binary is that
/// of [`Server`](super::Server).
#[derive(Debug)]
pub struct Cluster {
    nodes: Mutex<Vec<Node>>,
    settings: ClusterBuilder,
}

impl Cluster {
    /// Starts three primaries and a replica of each.
    ///
    /// # Errors
    /// As for [`ClusterBuilder::start`].
    pub async fn start() -> Result<Self> {
        Self::builder().start().await
    }

    /// Settings for a cluster that differs from that.
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::new()
    }

    pub(super) fn new(nodes: Vec<Node>, settings: ClusterBuilder) -> Self {
        Self { nodes: Mutex::new(nodes), settings }
    }

    /// All nodes, also those that have ended; at first the primaries, in the order of their slots,
    /// then the replicas, in the order of their primaries.
    pub fn nodes(&self) -> Vec<Node> {
        lock(&self.nodes).clone()
    }

    /// Where to connect: all nodes, without a password; over TLS if they are configured with a `tls-cert-file`.
    pub fn url(&self) -> String {
        let (nodes, host) = (self.nodes(), self.settings.host.as_deref().unwrap_or("127.0.0.1"));
        let all: Vec<_> = nodes.iter().map(|node| format!("{host}:{}", node.door())).collect();
        format!("{}+cluster://{}/", nodes.first().map_or("redis", Node::scheme), all.join(","))
    }

    /// Waits until each running node serves, all agree on who has which slots, and replicas are
    /// linked to their primaries.
    ///
    /// # Errors
    /// When that is not so within half a minute; the message says what is missing.
    pub async fn wait_until_ok(&self) -> Result<()> {
        until(PATIENCE, "the cluster", async || health::check(&self.nodes()).await).await
    }

    /// A node that runs.
    fn any(&self) -> Result<Node> {
        self.nodes().into_iter().find(Node::is_running).ok_or_else(|| failed("no node of the cluster runs"))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Those that tests still hold end, too.
        self.nodes().iter().for_each(Node::kill);
    }
}
