//! The roles of nodes: primaries, replicas, owners of slots.

use futures::future::join_all;

use crate::servers::cluster::view::{ClusterView, Entry};
use crate::servers::cluster::{CLUSTER_TIMEOUT, LocalCluster};
use crate::servers::{LocalNode, failed, poll_until};
use keylapse::Result;

impl LocalCluster {
    /// Returns the running nodes that report that they are primaries.
    ///
    /// # Errors
    /// Returns an error if no node replies.
    pub async fn primaries(&self) -> Result<Vec<LocalNode>> {
        let reports = self.self_reports().await?.into_iter();
        Ok(reports.filter(|(_, report)| report.is_primary()).map(|(node, _)| node).collect())
    }

    /// Returns the running replicas of `primary`, which may be down itself.
    ///
    /// # Errors
    /// Returns an error if no node replies.
    pub async fn replicas_of(&self, primary: &LocalNode) -> Result<Vec<LocalNode>> {
        let id = primary.id();
        let reports = self.self_reports().await?.into_iter();
        let replicas =
            reports.filter(|(_, report)| report.primary.is_some() && report.primary.as_deref() == id);
        Ok(replicas.map(|(node, _)| node).collect())
    }

    /// Returns a running replica of `primary`.
    ///
    /// # Errors
    /// Returns an error if no replica runs.
    pub async fn replica_of(&self, primary: &LocalNode) -> Result<LocalNode> {
        let first = self.replicas_of(primary).await?.into_iter().next();
        first.ok_or_else(|| failed(format!("{primary:?} has no running replica")))
    }

    /// Returns the running primary that serves a slot. If several claim it, the one with the highest epoch serves it.
    ///
    /// # Errors
    /// Returns an error if no running primary serves the slot.
    pub async fn owner_of_slot(&self, slot: u16) -> Result<LocalNode> {
        let reports = self.self_reports().await?.into_iter();
        let owners = reports.filter(|(_, report)| report.is_primary() && report.has(slot));
        let latest = owners.max_by_key(|(_, report)| report.epoch).map(|(node, _)| node);
        latest.ok_or_else(|| failed(format!("no running node serves slot {slot}")))
    }

    /// Returns the running primary that serves a key's slot, as [`owner_of_slot`](Self::owner_of_slot) does.
    ///
    /// # Errors
    /// Returns an error if no running primary serves the slot.
    pub async fn owner_of_key(&self, key: &str) -> Result<LocalNode> {
        self.owner_of_slot(self.slot_of(key).await?).await
    }

    /// Returns the slot of a key.
    ///
    /// # Errors
    /// Returns an error if no node runs, or the node that is asked does not reply.
    pub async fn slot_of(&self, key: &str) -> Result<u16> {
        self.any()?.send(&["CLUSTER", "KEYSLOT", key]).await
    }

    /// Promotes a replica in coordination with its primary (`CLUSTER FAILOVER`), and waits until all nodes agree.
    ///
    /// # Errors
    /// Returns an error if the replica refuses, or the failover takes more than 30 s.
    pub async fn failover(&self, replica: &LocalNode) -> Result<()> {
        replica.execute_all(&["CLUSTER FAILOVER".to_owned()]).await?;
        poll_until(CLUSTER_TIMEOUT, "the replica to be a primary", async || {
            match ClusterView::of(replica).await?.myself()?.is_primary() {
                true => Ok(()),
                false => Err(failed("it is still a replica")),
            }
        })
        .await?;
        self.wait_until_ok().await
    }

    /// Waits until a node other than `old` serves a slot, and returns that node.
    ///
    /// # Errors
    /// Returns an error after 30 s.
    pub async fn wait_for_owner_other_than(&self, old: &LocalNode, slot: u16) -> Result<LocalNode> {
        poll_until(CLUSTER_TIMEOUT, "another owner of the slot", async || {
            match self.owner_of_slot(slot).await? {
                owner if owner == *old => Err(failed("the owner has not changed")),
                owner => Ok(owner),
            }
        })
        .await
    }

    /// Returns the entry of each running node in its own view. Nodes that do not reply are left out.
    async fn self_reports(&self) -> Result<Vec<(LocalNode, Entry)>> {
        let views = self.views().await?.into_iter();
        views.map(|(node, view)| Ok((node, view.myself()?.clone()))).collect()
    }

    /// Returns the view of each running node. Nodes that do not reply are left out.
    pub(super) async fn views(&self) -> Result<Vec<(LocalNode, ClusterView)>> {
        let running: Vec<_> = self.nodes().into_iter().filter(LocalNode::is_running).collect();
        let views = join_all(running.iter().map(ClusterView::of)).await;
        let answers = running.into_iter().zip(views).filter_map(|(node, view)| Some((node, view.ok()?)));
        let answers: Vec<_> = answers.collect();
        if answers.is_empty() { Err(failed("no node of the cluster replies")) } else { Ok(answers) }
    }
}
