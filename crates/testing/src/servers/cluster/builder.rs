//! What a cluster shall be like, and how it is made: what `redis-cli --cluster create` does.

use std::path::PathBuf;
use std::time::Duration;

use futures::future::try_join_all;

use crate::servers::cluster::view::ClusterView;
use crate::servers::cluster::{LocalCluster, view};
use crate::servers::instance::{Kind, ServerSpec, Settings};
use crate::servers::{LocalNode, bounded, failed, poll_until};
use keylapse::Result;

/// Settings for a cluster that is about to be started; see [`Cluster::builder`].
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

    /// How many nodes have slots. Default: 3. With fewer nobody is promoted when one fails.
    pub fn primaries(mut self, count: usize) -> Self {
        self.primaries = count;
        self
    }

    /// How many replicas each of them has. Default: 1.
    pub fn replicas_per_primary(mut self, count: usize) -> Self {
        self.replicas_per_primary = count;
        self
    }

    /// How long a node may be silent before the others call it failed: `cluster-node-timeout`. Default:
    /// 2 s.
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = timeout;
        self
    }

    /// The flags of `notify-keyspace-events`. Default: `Ex`.
    pub fn notifications(mut self, flags: &str) -> Self {
        flags.clone_into(&mut self.nodes.notifications);
        self
    }

    /// One more line for the configuration of each node, as it stands in `redis.conf`: `appendonly
    /// yes`, or `user app on >secret ~app:* +@all`. It overrides lines before it.
    pub fn config(mut self, line: &str) -> Self {
        self.nodes.config.push(line.to_owned());
        self
    }

    /// The server to run, instead of that of [`Server`](crate::Server).
    pub fn binary(mut self, path: impl Into<PathBuf>) -> Self {
        self.nodes.binary = Some(path.into());
        self
    }

    /// The password of the default user on all nodes. Default: none.
    pub fn password(mut self, password: &str) -> Self {
        self.nodes.password = Some(password.to_owned());
        self
    }

    /// How many databases there are, where the server has several in a cluster: Valkey 9 and newer.
    /// Default: 1.
    pub fn databases(self, count: u16) -> Self {
        self.config(&format!("cluster-databases {count}"))
    }

    /// What clients are told instead of 127.0.0.1: `localhost`, or `127.0.0.2` if a proxy listens
    /// there on each node's port. Nodes talk to each other as before.
    pub fn announced_host(mut self, host: &str) -> Self {
        self.host = Some(host.to_owned());
        self
    }

    /// Starts all nodes and makes them a cluster. It takes about 2.5 s, of which a node waits 2 s after its
    /// start before it accepts writes.
    ///
    /// # Errors
    /// When no server is installed, one does not start, or they do not come together within half a
    /// minute; the message holds what they said.
    pub async fn start(self) -> Result<LocalCluster> {
        let nodes = cluster(&self).await?;
        Ok(LocalCluster::new(nodes, self))
    }

    pub(super) fn node_spec(&self) -> Result<ServerSpec> {
        let mut own = vec![
            "cluster-enabled yes".to_owned(),
            // A test says who is whose replica.
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

const SLOTS: usize = 16_384;
const CLUSTER_START_TIMEOUT: Duration = Duration::from_secs(30);

/// Nodes that serve all slots; the primaries come first.
pub(super) async fn cluster(builder: &LocalClusterBuilder) -> Result<Vec<LocalNode>> {
    let primaries = builder.primaries;
    let each = builder.replicas_per_primary.saturating_add(1);
    let count = bounded("nodes", primaries.saturating_mul(each))?;
    let plan = builder.node_spec()?;
    let nodes = try_join_all((0..count).map(|_| LocalNode::start_in_cluster_mode(plan.clone()))).await?;
    // Each has an epoch of its own from the start, or they would settle that first. It is given one
    // before it knows others.
    try_join_all(nodes.iter().enumerate().map(|(at, node)| give_slots(at, primaries, node))).await?;
    try_join_all(nodes.iter().enumerate().map(|(at, node)| introduce(node, &nodes[at + 1..]))).await?;
    poll_until(CLUSTER_START_TIMEOUT, "nodes to meet", async || all_know_all(&nodes).await).await?;

    let replicas = nodes.iter().enumerate().skip(primaries);
    try_join_all(replicas.map(|(at, replica)| follow(replica, &nodes[at % primaries]))).await?;
    poll_until(CLUSTER_START_TIMEOUT, "the cluster", async || {
        all_know_all(&nodes).await?;
        view::check(&nodes).await
    })
    .await?;
    Ok(nodes)
}

/// Gives a node its epoch, and a primary its slots.
async fn give_slots(at: usize, primaries: usize, node: &LocalNode) -> Result<()> {
    let mut commands = vec![format!("CLUSTER SET-CONFIG-EPOCH {}", at + 1)];
    if at < primaries {
        let [first, end] = [at, at + 1].map(|at| at * SLOTS / primaries);
        commands.push(format!("CLUSTER ADDSLOTSRANGE {first} {}", end - 1));
    }
    node.execute_all(&commands).await
}

/// Each pair meets by itself: rumours are slower.
async fn introduce(node: &LocalNode, others: &[LocalNode]) -> Result<()> {
    let commands: Vec<_> = others.iter().map(meet).collect();
    if commands.is_empty() { Ok(()) } else { node.execute_all(&commands).await }
}

/// The command that makes others known.
pub(super) fn meet(node: &LocalNode) -> String {
    format!("CLUSTER MEET 127.0.0.1 {} {}", node.connect_port(), node.bus_port())
}

/// Makes one the replica of another, as soon as it knows that one.
pub(super) async fn follow(replica: &LocalNode, primary: &LocalNode) -> Result<()> {
    let command = [format!("CLUSTER REPLICATE {}", primary.id().unwrap_or_default())];
    poll_until(CLUSTER_START_TIMEOUT, "a replica to know its primary", async || {
        replica.execute_all(&command).await
    })
    .await
}

/// Whether those that run have all been introduced to each other.
pub(super) async fn all_know_all(nodes: &[LocalNode]) -> Result<()> {
    let running: Vec<&LocalNode> = nodes.iter().filter(|node| node.is_running()).collect();
    for view in try_join_all(running.iter().map(|node| ClusterView::of(node))).await? {
        if let Some(stranger) = running.iter().find(|node| !view.knows(node.id().unwrap_or_default())) {
            return Err(failed(format!("a node knows only {view:?}, and not {stranger:?}")));
        }
    }
    Ok(())
}
