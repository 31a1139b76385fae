//! From servers to a cluster: what `redis-cli --cluster create` does.

use std::time::Duration;

use futures::future::try_join_all;

use crate::servers::cluster::builder::ClusterBuilder;
use crate::servers::cluster::health;
use crate::servers::cluster::view::View;
use crate::servers::until::until;
use crate::servers::{Node, bounded, failed};
use keylapse::Result;

const SLOTS: usize = 16_384;
const READY: Duration = Duration::from_secs(30);

/// Nodes that serve all slots; the primaries come first.
pub(super) async fn cluster(builder: &ClusterBuilder) -> Result<Vec<Node>> {
    let primaries = builder.primaries;
    let each = builder.replicas_each.saturating_add(1);
    let count = bounded("nodes", primaries.saturating_mul(each))?;
    let plan = builder.plan()?;
    let nodes = try_join_all((0..count).map(|_| Node::start_in_cluster_mode(plan.clone()))).await?;
    // Each has an epoch of its own from the start, or they would settle that first. It is given one
    // before it knows others.
    try_join_all(nodes.iter().enumerate().map(|(at, node)| give_slots(at, primaries, node))).await?;
    try_join_all(nodes.iter().enumerate().map(|(at, node)| introduce(node, &nodes[at + 1..]))).await?;
    until(READY, "nodes to meet", async || all_know_all(&nodes).await).await?;

    let replicas = nodes.iter().enumerate().skip(primaries);
    try_join_all(replicas.map(|(at, replica)| follow(replica, &nodes[at % primaries]))).await?;
    until(READY, "the cluster", async || {
        all_know_all(&nodes).await?;
        health::check(&nodes).await
    })
    .await?;
    Ok(nodes)
}

/// Gives a node its epoch, and a primary its slots.
async fn give_slots(at: usize, primaries: usize, node: &Node) -> Result<()> {
    let mut commands = vec![format!("CLUSTER SET-CONFIG-EPOCH {}", at + 1)];
    if at < primaries {
        let [first, end] = [at, at + 1].map(|at| at * SLOTS / primaries);
        commands.push(format!("CLUSTER ADDSLOTSRANGE {first} {}", end - 1));
    }
    node.tell(&commands).await
}

/// Each pair meets by itself: rumours are slower.
async fn introduce(node: &Node, others: &[Node]) -> Result<()> {
    let commands: Vec<_> = others.iter().map(meet).collect();
    if commands.is_empty() { Ok(()) } else { node.tell(&commands).await }
}

/// The command that makes others known.
pub(super) fn meet(node: &Node) -> String {
    format!("CLUSTER MEET 127.0.0.1 {} {}", node.door(), node.bus_port())
}

/// Makes one the replica of another, as soon as it knows that one.
pub(super) async fn follow(replica: &Node, primary: &Node) -> Result<()> {
    let command = [format!("CLUSTER REPLICATE {}", primary.id().unwrap_or_default())];
    until(READY, "a replica to know its primary", async || replica.tell(&command).await).await
}

/// Whether those that run have all been introduced to each other.
pub(super) async fn all_know_all(nodes: &[Node]) -> Result<()> {
    let running: Vec<&Node> = nodes.iter().filter(|node| node.is_running()).collect();
    for view in try_join_all(running.iter().map(|node| View::of(node))).await? {
        if let Some(stranger) = running.iter().find(|node| !view.knows(node.id().unwrap_or_default())) {
            return Err(failed(format!("a node knows only {view:?}, and not {stranger:?}")));
        }
    }
    Ok(())
}
