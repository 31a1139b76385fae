//! What the others say of a node: whether it is a primary is not for itself to say.

use futures::StreamExt;
use futures::stream::iter;

use crate::connection::cluster::Cluster;
use crate::connection::cluster::discovery::ASKED_AT_ONCE;
use crate::connection::cluster_map::ClusterMap;
use crate::connection::endpoint::Endpoint;
use crate::error::{Error, ErrorKind, Result};

/// What another node says of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is a primary, of whatever slots.
    Primary,
    /// It is a replica: it was replaced if it was a primary before, unless who says so is late.
    Replica,
    /// It is not known, or has failed.
    Unknown,
}

impl Cluster {
    /// What another node says of this one now. One that has no others beside it is what it is. Who says that it was
    /// replaced says by whom: that map is the present one.
    ///
    /// # Errors
    /// When no other node answers.
    pub(crate) async fn standing_of(&self, name: &str, endpoint: &Endpoint) -> Result<Standing> {
        let (trusted, doubted) = self.known_nodes();
        let others: Vec<_> = trusted.into_iter().chain(doubted).filter(|other| other != endpoint).collect();
        if self.map().borrow().members().all(|member| member.id == name) {
            return Ok(Standing::Primary);
        }
        let ask = |other: Endpoint| async move { self.ask(&other).await };
        let mut answers = iter(others).map(ask).buffered(ASKED_AT_ONCE).boxed();
        while let Some(answer) = answers.next().await {
            if let Ok(map) = answer {
                let standing = map.standing_of(name);
                if standing == Standing::Replica {
                    self.learn(map);
                }
                return Ok(standing);
            }
        }
        let message = format!("no other node of the cluster says what {endpoint} is");
        Err(Error::new(ErrorKind::Unavailable, message))
    }
}

impl ClusterMap {
    fn standing_of(&self, name: &str) -> Standing {
        let mut standing = Standing::Unknown;
        for shard in self.shards() {
            if shard.primary.as_ref().is_some_and(|primary| primary.id == name) {
                return Standing::Primary;
            }
            if shard.replicas.iter().any(|replica| replica.id == name) {
                standing = Standing::Replica;
            }
        }
        standing
    }
}
