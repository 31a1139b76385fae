//! What the others say of a node: whether it is a primary is not for itself to say.

use futures::FutureExt;

use crate::cluster::Cluster;
use crate::cluster_map::ClusterMap;
use crate::endpoint::Endpoint;
use crate::error::{Error, ErrorKind, Result};

/// What another node says of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is a primary, of whatever slots.
    Primary,
    /// It is a replica, or has failed and no slots are its own any more: it was replaced if it was a primary before, unless
    /// who says so is late.
    Replica,
    /// It is not known, or has failed and nobody has its slots.
    Unknown,
}

impl Cluster {
    /// What another node says of this one now. One that has no others beside it is what it is. Who says that it was
    /// replaced says by whom: that map is the present one.
    ///
    /// # Errors
    /// When no other node answers.
    pub async fn standing_of(&self, name: &str, endpoint: &Endpoint) -> Result<Standing> {
        if self.map().borrow().members().all(|member| member.id == name) {
            return Ok(Standing::Primary);
        }
        let Ok(told) = self.ask_anyone_but(Some(endpoint)).boxed().await else {
            let message = format!("no other node of the cluster says what {endpoint} is");
            return Err(Error::new(ErrorKind::Unavailable, message));
        };
        let standing = told.map.standing_of(name);
        if standing == Standing::Replica {
            self.learn(told.map);
        }
        Ok(standing)
    }
}

impl ClusterMap {
    pub(crate) fn standing_of(&self, name: &str) -> Standing {
        let mut standing = Standing::Unknown;
        for shard in self.shards() {
            if shard.primary.as_ref().is_some_and(|primary| primary.id == name) {
                return Standing::Primary;
            }
            let has_failed = shard.failed.iter().any(|failed| failed.id == name);
            let is_replaced = has_failed && (shard.primary.is_some() || shard.slots.is_empty());
            if is_replaced || shard.replicas.iter().any(|replica| replica.id == name) {
                standing = Standing::Replica;
            }
        }
        standing
    }
}
