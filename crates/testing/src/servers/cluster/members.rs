//! Nodes that come and go.

use futures::future::try_join_all;

use crate::servers::Node;
use crate::servers::cluster::{Cluster, PATIENCE, form};
use crate::servers::until::until;
use keylapse::Result;
use keylapse_connection::lock::lock;

impl Cluster {
    /// Starts one more node, a primary without slots, and waits until all know it.
    ///
    /// # Errors
    /// When it does not start, or the others do not know it within half a minute.
    pub async fn add_node(&self) -> Result<Node> {
        let node = Node::start_in_cluster_mode(self.settings.plan()?).await?;
        node.tell(&[form::meet(&self.any()?)]).await?;
        lock(&self.nodes).push(node.clone());
        until(PATIENCE, "the new node to be known", async || form::all_know_all(&self.nodes()).await).await?;
        self.wait_until_ok().await?;
        Ok(node)
    }

    /// Starts one more replica of this primary, and waits until it is linked.
    ///
    /// # Errors
    /// As for [`add_node`](Self::add_node).
    pub async fn add_replica_of(&self, primary: &Node) -> Result<Node> {
        let node = self.add_node().await?;
        form::follow(&node, primary).await?;
        self.wait_until_ok().await?;
        Ok(node)
    }

    /// Has all running nodes forget this one, and ends it. Move its slots first.
    ///
    /// # Errors
    /// When a node refuses, as its own replicas do.
    pub async fn remove_node(&self, node: &Node) -> Result<()> {
        let others: Vec<_> = self.nodes().into_iter().filter(|other| other != node).collect();
        let command = [format!("CLUSTER FORGET {}", node.id().unwrap_or_default())];
        try_join_all(others.iter().filter(|other| other.is_running()).map(|other| other.tell(&command)))
            .await?;
        node.kill();
        *lock(&self.nodes) = others;
        Ok(())
    }
}
