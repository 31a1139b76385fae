//! Detects nodes that come or go unnoticed by calls: one node is asked by CLUSTER INFO, again and again.

use std::convert::Infallible;
use std::time::Duration;

use rand::seq::IndexedRandom;
use redis::cmd;

use crate::cluster::Cluster;
use crate::endpoint::Endpoint;
use crate::error::Result;

/// The fields of CLUSTER INFO that change with the nodes and their slots. Most others count messages.
const SIGNS: [&str; 4] =
    ["cluster_known_nodes:", "cluster_size:", "cluster_slots_ok:", "cluster_current_epoch:"];

const ASKING: &str = "asking a node for news of its cluster";

impl Cluster {
    /// Asks one node again and again, and suspects the map whenever the answer is another than before. For ever.
    pub async fn watch(&self, every: Duration) -> Infallible {
        let (mut asked, mut before) = (None, None);
        loop {
            asked = asked.filter(|endpoint| self.is_member(endpoint)).or_else(|| self.any_member());
            let signs = match &asked {
                Some(endpoint) => self.signs_of(endpoint).await,
                None => Ok(None),
            };
            match signs {
                Ok(signs) if before == signs => {}
                Ok(signs) => {
                    before = signs;
                    self.suspect();
                }
                // Another is asked, and what that one says is news.
                Err(_) => (asked, before) = (None, None),
            }
            tokio::time::sleep(every).await;
        }
    }

    /// None where the node does not say: a right may be missing.
    async fn signs_of(&self, endpoint: &Endpoint) -> Result<Option<Vec<String>>> {
        match self.server(endpoint).seat().call(ASKING, cmd("CLUSTER").arg("INFO")).await {
            Ok(answer) => Ok(redis::from_redis_value::<String>(answer).ok().map(|info| signs_in(&info))),
            Err(error) if error.code().is_some() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn is_member(&self, endpoint: &Endpoint) -> bool {
        self.map.borrow().members().any(|member| member.endpoint == *endpoint)
    }

    fn any_member(&self) -> Option<Endpoint> {
        let map = self.map.borrow().clone();
        let members: Vec<_> = map.members().map(|member| &member.endpoint).collect();
        members.choose(&mut rand::rng()).map(|endpoint| (*endpoint).clone())
    }
}

fn signs_in(info: &str) -> Vec<String> {
    let is_sign = |line: &&str| SIGNS.iter().any(|sign| line.starts_with(sign));
    info.lines().filter(is_sign).map(str::to_owned).collect()
}
