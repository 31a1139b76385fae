//! Who is what: primaries, replicas, owners of slots.

use futures::future::join_all;

use crate::servers::cluster::view::{ClusterView, Entry};
use crate::servers::cluster::{CLUSTER_TIMEOUT, LocalCluster};
use crate::servers::{LocalNode, failed, poll_until};
use keylapse::Result;

impl LocalCluster {
    /// The running nodes that say of themselves that they are primaries.
    ///
    /// # Errors
    /// When no node answers.
    pub async fn primaries(&self) -> Result<Vec<LocalNode>> {
        let said = self.self_reports().await?;
        Ok(said.into_iter().filter(|(_, says)| says.is_primary()).map(|(node, _)| node).collect())
    }

    /// The running replicas of this node, which need not run.
    ///
    /// # Errors
    /// When no node answers.
    pub async fn replicas_of(&self, primary: &LocalNode) -> Result<Vec<LocalNode>> {
        let id = primary.id();
        let said = self.self_reports().await?;
        let said =
            said.into_iter().filter(|(_, says)| says.primary.is_some() && says.primary.as_deref() == id);
        Ok(said.map(|(node, _)| node).collect())
    }

    /// A running replica of this node.
    ///
    /// # Errors
    /// When it has none.
    pub async fn replica_of(&self, primary: &LocalNode) -> Result<LocalNode> {
        let first = self.replicas_of(primary).await?.into_iter().next();
        first.ok_or_else(|| failed(format!("{primary:?} has no replica that runs")))
    }

    /// Who serves a slot: the running primary that says so, of several the one with the latest
    /// epoch.
    ///
    /// # Errors
    /// When nobody does.
    pub async fn owner_of_slot(&self, slot: u16) -> Result<LocalNode> {
        let said = self.self_reports().await?;
        let owners = said.into_iter().filter(|(_, says)| says.is_primary() && says.has(slot));
        let latest = owners.max_by_key(|(_, says)| says.epoch).map(|(node, _)| node);
        latest.ok_or_else(|| failed(format!("no running node serves slot {slot}")))
    }

    /// Who serves a key's slot; see [`owner_of_slot`](Self::owner_of_slot).
    ///
    /// # Errors
    /// When nobody does.
    pub async fn owner_of_key(&self, key: &str) -> Result<LocalNode> {
        self.owner_of_slot(self.slot_of(key).await?).await
    }

    /// A key's slot.
    ///
    /// # Errors
    /// When no node answers.
    pub async fn slot_of(&self, key: &str) -> Result<u16> {
        self.any()?.send(&["CLUSTER", "KEYSLOT", key]).await
    }

    /// Has a replica take its primary's place, with the primary's consent (`CLUSTER FAILOVER`), and waits
    /// until all know it.
    ///
    /// # Errors
    /// When the server refuses it, or it has not happened within half a minute.
    pub async fn failover(&self, replica: &LocalNode) -> Result<()> {
        replica.execute_all(&["CLUSTER FAILOVER".to_owned()]).await?;
        poll_until(CLUSTER_TIMEOUT, "the replica to be primary", async || {
            match ClusterView::of(replica).await?.myself()?.is_primary() {
                true => Ok(()),
                false => Err(failed("it is a replica")),
            }
        })
        .await?;
        self.wait_until_ok().await
    }

    /// Waits until another than this one serves a slot, and answers who.
    ///
    /// # Errors
    /// When nobody does within half a minute.
    pub async fn wait_for_owner_other_than(&self, old: &LocalNode, slot: u16) -> Result<LocalNode> {
        poll_until(CLUSTER_TIMEOUT, "another owner of the slot", async || {
            match self.owner_of_slot(slot).await? {
                owner if owner == *old => Err(failed("it is the old one")),
                owner => Ok(owner),
            }
        })
        .await
    }

    /// What each running node says of itself. Those that do not answer say nothing.
    async fn self_reports(&self) -> Result<Vec<(LocalNode, Entry)>> {
        let views = self.views().await?.into_iter();
        views.map(|(node, view)| Ok((node, view.myself()?.clone()))).collect()
    }

    /// What each running node that answers knows of the cluster.
    pub(super) async fn views(&self) -> Result<Vec<(LocalNode, ClusterView)>> {
        let running: Vec<_> = self.nodes().into_iter().filter(LocalNode::is_running).collect();
        let views = join_all(running.iter().map(ClusterView::of)).await;
        let answers = running.into_iter().zip(views).filter_map(|(node, view)| Some((node, view.ok()?)));
        let answers: Vec<_> = answers.collect();
        if answers.is_empty() { Err(failed("no node of the cluster answers")) } else { Ok(answers) }
    }
}
