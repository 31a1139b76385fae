//! The settings and the creation of a cluster, as `redis-cli --cluster create` does it.

use std::path::PathBuf;
use std::time::Duration;

use futures::future::try_join_all;

use crate::servers::cluster::view::ClusterView;
use crate::servers::cluster::{LocalCluster, view};
use crate::servers::instance::{Kind, ServerSpec, Settings};
use crate::servers::{LocalNode, bounded, failed, poll_until};
use keylapse::Result;
use keylapse_connection::CLUSTER_SLOTS;

/// The settings of a [`LocalCluster`]; see [`LocalCluster::builder`].
#[derive(Clone, Debug)]
#[must_use]
pub struct LocalClusterBuilder {
    pub(super) primaries: usize,
    pub(super) replicas_per_primary: usize,
    node_timeout: Duration,
    nodes: Settings,
    pub(super) host: Option<String>,
}

impl LocalClusterBuilder {
    pub(super) fn new() -> Self {
        Self {
            primaries: 3,
            replicas_per_primary: 1,
            node_timeout: Duration::from_secs(2),
            nodes: Settings::default(),
            host: None,
        }
    }

    /// Sets the number of primaries. Default: 3. With fewer, no replica is promoted when a primary fails.
    pub fn primaries(mut self, count: usize) -> Self {
        self.primaries = count;
        self
    }

    /// Sets the number of replicas of each primary. Default: 1.
    pub fn replicas_per_primary(mut self, count: usize) -> Self {
        self.replicas_per_primary = count;
        self
    }

    /// Sets how long a node may be silent before the others consider it failed (`cluster-node-timeout`). Default: 2 s.
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = timeout;
        self
    }

    /// Sets the flags of `notify-keyspace-events`. Default: `Ex`.
    pub fn notifications(mut self, flags: &str) -> Self {
        flags.clone_into(&mut self.nodes.notifications);
        self
    }

    /// Adds a line to the configuration of each node, in the format of `redis.conf`: `appendonly yes`, or
    /// `user app on >secret ~app:* +@all`. It overrides earlier lines.
    pub fn config(mut self, line: &str) -> Self {
        self.nodes.config.push(line.to_owned());
        self
    }

    /// Sets the binary of the nodes. Default: the binary of [`LocalServer`](crate::LocalServer).
    pub fn binary(mut self, path: impl Into<PathBuf>) -> Self {
        self.nodes.binary = Some(path.into());
        self
    }

    /// Sets the password of the default user on all nodes. Default: none.
    pub fn password(mut self, password: &str) -> Self {
        self.nodes.password = Some(password.to_owned());
        self
    }

    /// Sets the number of databases, for Valkey 9 and newer. Other servers have one database in a cluster. Default: 1.
    pub fn databases(self, count: u16) -> Self {
        self.config(&format!("cluster-databases {count}"))
    }

    /// Sets the host that nodes announce to clients instead of 127.0.0.1: `localhost`, or `127.0.0.2` if a proxy listens
    /// there on each node's port. Nodes still connect to each other at 127.0.0.1.
    pub fn announced_host(mut self, host: &str) -> Self {
        self.host = Some(host.to_owned());
        self
    }

    /// Starts all nodes and creates a cluster of them. This takes about 2.5 s, because a node accepts no writes in the first
    /// 2 s.
    ///
    /// # Errors
    /// Returns an error if no binary is installed, a node does not start, or the cluster is not ready within 30 s. The
    /// message has the cause.
    pub async fn start(self) -> Result<LocalCluster> {
        let nodes = cluster(&self).await?;
        Ok(LocalCluster::new(nodes, self))
    }

    pub(super) fn node_spec(&self) -> Result<ServerSpec> {
        let mut own = vec![
            "cluster-enabled yes".to_owned(),
            // The test decides which replica belongs to which primary.
            "cluster-allow-replica-migration no".to_owned(),
            format!("cluster-node-timeout {}", self.node_timeout.as_millis()),
        ];
        if let Some(host) = &self.host {
            own.push(format!("cluster-announce-hostname {host}"));
            own.push("cluster-preferred-endpoint-type hostname".to_owned());
        }
        self.nodes.server_spec(Kind::ClusterNode, own)
    }
}

const CLUSTER_START_TIMEOUT: Duration = Duration::from_secs(30);

/// Starts the nodes of a cluster that serves all slots. The primaries come first.
pub(super) async fn cluster(builder: &LocalClusterBuilder) -> Result<Vec<LocalNode>> {
    let primaries = builder.primaries;
    let each = builder.replicas_per_primary.saturating_add(1);
    let count = bounded("nodes", primaries.saturating_mul(each))?;
    let spec = builder.node_spec()?;
    let nodes = try_join_all((0..count).map(|_| LocalNode::start_in_cluster_mode(spec.clone()))).await?;
    // Each node gets a unique epoch, or the nodes would first resolve the conflict. Redis accepts this only before the nodes
    // meet.
    try_join_all(nodes.iter().enumerate().map(|(at, node)| give_slots(at, primaries, node))).await?;
    try_join_all(nodes.iter().enumerate().map(|(at, node)| introduce(node, &nodes[at + 1..]))).await?;
    poll_until(CLUSTER_START_TIMEOUT, "the nodes to meet", async || check_introductions(&nodes).await)
        .await?;

    let replicas = nodes.iter().enumerate().skip(primaries);
    try_join_all(replicas.map(|(at, replica)| follow(replica, &nodes[at % primaries]))).await?;
    poll_until(CLUSTER_START_TIMEOUT, "the cluster to be ready", async || {
        check_introductions(&nodes).await?;
        view::check(&nodes).await
    })
    .await?;
    Ok(nodes)
}

/// Gives a node its epoch, and a primary its slots.
async fn give_slots(at: usize, primaries: usize, node: &LocalNode) -> Result<()> {
    let mut commands = vec![format!("CLUSTER SET-CONFIG-EPOCH {}", at + 1)];
    if at < primaries {
        let [first, end] = [at, at + 1].map(|at| at * usize::from(CLUSTER_SLOTS) / primaries);
        commands.push(format!("CLUSTER ADDSLOTSRANGE {first} {}", end - 1));
    }
    node.execute_all(&commands).await
}

/// Introduces a node to each other node, because gossip is slower.
async fn introduce(node: &LocalNode, others: &[LocalNode]) -> Result<()> {
    let commands: Vec<_> = others.iter().map(meet).collect();
    if commands.is_empty() { Ok(()) } else { node.execute_all(&commands).await }
}

/// Returns the command that introduces a node to another.
pub(super) fn meet(node: &LocalNode) -> String {
    format!("CLUSTER MEET 127.0.0.1 {} {}", node.connect_port(), node.bus_port())
}

/// Makes a node the replica of a primary, as soon as it has met the primary.
pub(super) async fn follow(replica: &LocalNode, primary: &LocalNode) -> Result<()> {
    let command = [format!("CLUSTER REPLICATE {}", primary.id().unwrap_or_default())];
    poll_until(CLUSTER_START_TIMEOUT, "a replica to meet its primary", async || {
        replica.execute_all(&command).await
    })
    .await
}

/// Returns an error unless all running nodes have met each other.
pub(super) async fn check_introductions(nodes: &[LocalNode]) -> Result<()> {
    let running: Vec<&LocalNode> = nodes.iter().filter(|node| node.is_running()).collect();
    for view in try_join_all(running.iter().map(|node| ClusterView::of(node))).await? {
        if let Some(missing) = running.iter().find(|node| !view.has_met(node.id().unwrap_or_default())) {
            return Err(failed(format!("a node has not met {missing:?}: {view:?}")));
        }
    }
    Ok(())
}
