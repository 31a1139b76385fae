//! Who owns what: asked of any node, when something has shown that the map is old.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::stream::iter;
use futures::{FutureExt, StreamExt};
use rand::seq::SliceRandom;
use redis::cmd;
use tokio::time::{Instant, timeout};

use crate::connection::cluster::Cluster;
use crate::connection::cluster_map::ClusterMap;
use crate::connection::endpoint::Endpoint;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::lock;
use crate::log::info;

/// Nodes that are asked for the map at the same time.
pub(super) const ASKED_AT_ONCE: usize = 3;
/// A node that says nothing for so long is not waited for.
const ASKED_WITHIN: Duration = Duration::from_secs(2);
/// Calls that find the map old ask for another no more often than this.
const REFRESH_EVERY: Duration = Duration::from_millis(250);
/// A node that was silent has learnt by then whether it was replaced.
const DOUBTED_FOR: Duration = Duration::from_secs(10);

impl Cluster {
    /// Asks for the map if none is known.
    pub(crate) async fn known_map(&self) -> Result<Arc<ClusterMap>> {
        if self.map.borrow().members().next().is_none() {
            self.refresh_if_old(true).boxed().await?;
        }
        Ok(self.map.borrow().clone())
    }

    /// Asks for the map, unless somebody just has; who needs it waits for whoever does.
    pub(super) async fn refresh_if_old(&self, wait: bool) -> Result<()> {
        let asked = lock(&self.refreshed).is_some_and(|at| at.elapsed() < REFRESH_EVERY);
        if asked && !wait {
            return Ok(());
        }
        if !wait && self.refreshing.try_lock().is_err() {
            return Ok(());
        }
        self.refresh().await
    }

    /// Asks known nodes who owns what. One refresh at a time: who comes while one is made waits for it, and takes it.
    pub(crate) async fn refresh(&self) -> Result<()> {
        let came = Instant::now();
        let _one_at_a_time = self.refreshing.lock().await;
        if lock(&self.refreshed).is_some_and(|at| at >= came) {
            return Ok(());
        }
        self.stale.store(false, Ordering::Relaxed);
        let map = self.ask_anyone().await;
        *lock(&self.refreshed) = Some(Instant::now());
        let map = map.inspect_err(|_| self.suspect())?;
        self.learn(map);
        Ok(())
    }

    pub(super) fn learn(&self, map: ClusterMap) {
        let members: BTreeSet<_> = map.members().map(|member| member.endpoint.clone()).collect();
        lock(&self.servers).retain(|endpoint, _| members.contains(endpoint));
        self.map.send_if_modified(|known| {
            let is_news = **known != map;
            if is_news {
                let (nodes, whole) = (members.len(), map.is_whole());
                info!(nodes, primaries = map.primaries().count(), whole, "the cluster's map has changed");
                *known = Arc::new(map);
            }
            is_news
        });
    }

    /// The first answer of a node that is known.
    async fn ask_anyone(&self) -> Result<ClusterMap> {
        let (trusted, doubted) = self.known_nodes();
        match self.ask_any_of(trusted).await {
            Err(_) if !doubted.is_empty() => self.ask_any_of(doubted).await,
            answer => answer,
        }
    }

    /// Those that are known, in any order, and the seeds that are not among them; and those of all these that may be wrong.
    pub(super) fn known_nodes(&self) -> (Vec<Endpoint>, Vec<Endpoint>) {
        let map = self.map.borrow().clone();
        let mut known: Vec<_> = map.members().map(|member| member.endpoint.clone()).collect();
        known.shuffle(&mut rand::rng());
        let is_new = |seed: &&Endpoint| map.members().all(|member| member.endpoint != **seed);
        known.extend(self.seeds.iter().filter(is_new).cloned());
        let mut doubted = lock(&self.doubted);
        doubted.retain(|_, since| since.elapsed() < DOUBTED_FOR);
        known.into_iter().partition(|endpoint| !doubted.contains_key(endpoint))
    }

    async fn ask_any_of(&self, nodes: Vec<Endpoint>) -> Result<ClusterMap> {
        let ask = |endpoint: Endpoint| async move { self.ask(&endpoint).await };
        let mut answers = iter(nodes).map(ask).buffer_unordered(ASKED_AT_ONCE);
        let mut worst: Option<Error> = None;
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(map) => return Ok(map),
                // What an operator has to change says more than a node that is away.
                Err(error) if worst.as_ref().is_none_or(|worst| worst.is_transient()) => worst = Some(error),
                Err(_) => {}
            }
        }
        Err(worst.unwrap_or_else(|| Error::invalid("a cluster needs at least one host")))
    }

    /// What one node says.
    pub(super) async fn ask(&self, endpoint: &Endpoint) -> Result<ClusterMap> {
        let late = |_| Error::new(ErrorKind::Timeout, format!("{endpoint} does not answer"));
        timeout(ASKED_WITHIN, self.ask_patiently(endpoint)).await.unwrap_or_else(|error| Err(late(error)))
    }

    async fn ask_patiently(&self, endpoint: &Endpoint) -> Result<ClusterMap> {
        let seat = self.server(endpoint).seat();
        let ask =
            async |what: &str| seat.call("asking for the cluster's map", cmd("CLUSTER").arg(what)).await;
        let map = match ask("SHARDS").await {
            Ok(answer) => ClusterMap::read_shards(&answer, endpoint, self.access.tls.is_some()),
            Err(error) if error.code().is_none() => return Err(error),
            Err(shards) => match ask("SLOTS").await {
                Ok(answer) => ClusterMap::read_slots(&answer, endpoint),
                Err(_) => return Err(not_a_cluster(endpoint, shards)),
            },
        };
        map.ok_or_else(|| {
            let message =
                format!("{endpoint} does not say who owns the slots of the cluster: has one been made?");
            Error::new(ErrorKind::Unavailable, message)
        })
    }
}

/// Whoever answers there cannot be asked for a cluster.
fn not_a_cluster(endpoint: &Endpoint, error: Error) -> Error {
    let said = error.to_string();
    let advice = if said.contains("cluster support disabled") {
        "is no part of a cluster: its URL begins with redis://, or rediss://"
    } else if said.contains("unknown command") {
        "is no server of a cluster; that of a sentinel begins with redis+sentinel://"
    } else {
        return error;
    };
    Error::new(ErrorKind::Unsupported, format!("{endpoint} {advice} ({said})"))
}
