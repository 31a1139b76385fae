//! The servers of a run: some share the work, or one does it and others wait for its place.

use keylapse_testing::{LocalCluster, LocalNode, RedisReply, SentinelGroup};

use crate::job::{SHARDS, shard};

/// Servers, one of which may take another's place.
#[derive(Debug)]
pub enum Group {
    /// Each primary has some of the partitions.
    Cluster(LocalCluster),
    /// The master has all of them.
    Sentinel(SentinelGroup),
}

impl Group {
    /// Where to connect.
    pub fn url(&self) -> String {
        match self {
            Self::Cluster(cluster) => cluster.url(),
            Self::Sentinel(group) => group.url(),
        }
    }

    /// All servers; no sentinels.
    pub fn nodes(&self) -> Vec<LocalNode> {
        match self {
            Self::Cluster(cluster) => cluster.nodes(),
            Self::Sentinel(group) => group.servers().to_vec(),
        }
    }

    /// Who has a partition now; none if nobody has, or they disagree.
    pub async fn owner(&self, partition: u32) -> Option<LocalNode> {
        match self {
            Self::Cluster(cluster) => cluster.owner_of_key(shard(partition).key("due")).await.ok(),
            Self::Sentinel(group) => {
                let master = group.master().await.ok()?;
                // The sentinels may name one that is still to be promoted.
                (role(&master).await? == "master").then_some(master)
            }
        }
    }

    /// The partitions of which this node is the owner.
    pub async fn owned_by(&self, node: &LocalNode) -> Vec<u32> {
        let mut owned = Vec::new();
        for partition in 0..SHARDS {
            if self.owner(partition).await.is_some_and(|owner| owner == *node) {
                owned.push(partition);
            }
        }
        owned
    }

    /// Who may take this one's place.
    ///
    /// # Panics
    /// If no server says.
    pub async fn replicas_of(&self, node: &LocalNode) -> Vec<LocalNode> {
        match self {
            Self::Cluster(cluster) => cluster.replicas_of(node).await.expect("some servers answer"),
            Self::Sentinel(group) => {
                let others = group.servers().iter().filter(|server| *server != node && server.is_running());
                others.cloned().collect()
            }
        }
    }

    /// Whether it says of itself that it follows another.
    pub async fn is_replica(&self, node: &LocalNode) -> bool {
        role(node).await.is_some_and(|role| role == "slave")
    }

    /// Waits until all servers that run are well.
    ///
    /// # Panics
    /// If they are not within half a minute.
    pub async fn wait_until_ok(&self) {
        let well = match self {
            Self::Cluster(cluster) => cluster.wait_until_ok().await,
            Self::Sentinel(group) => group.wait_until_ok().await,
        };
        well.expect("all that run are well");
    }
}

/// What it says of itself; none if it says nothing.
async fn role(node: &LocalNode) -> Option<String> {
    if !node.is_running() {
        return None;
    }
    match node.command(["ROLE"]).await.ok()? {
        RedisReply::Array(role) => match role.first()? {
            RedisReply::Bulk(name) => Some(String::from_utf8_lossy(name).into_owned()),
            _ => None,
        },
        _ => None,
    }
}
