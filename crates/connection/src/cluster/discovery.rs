//! Discovers the owners of slots. A refresh of the map asks several nodes, once a call has shown that the map is stale.
//! Regular calls of CLUSTER INFO to one node detect changes that no call has shown.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures::stream::iter;
use futures::{FutureExt, StreamExt};
use rand::seq::{IndexedRandom, SliceRandom};
use redis::{Value, cmd, pipe};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::address::Endpoint;
use crate::cluster::Cluster;
use crate::cluster_map::{ClusterMap, NodeRole};
use crate::error::{Error, ErrorKind, Result};
use crate::log::info;
use crate::panics::lock;

/// The most nodes that are asked for the map at the same time.
const MAX_CONCURRENT_QUERIES: usize = 3;
/// The most answers that a refresh waits for, if some slots have no owner in the first ones.
const MAX_NODES_QUERIED: usize = 9;
/// The time limit for the answer of one node.
const NODE_QUERY_TIMEOUT: Duration = Duration::from_secs(2);
/// The time limit for the other nodes, after the first answer.
const OTHER_NODES_TIMEOUT: Duration = Duration::from_millis(100);
const NEVER: Duration = Duration::from_secs(86_400);
/// The minimum time between refreshes that calls request.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_millis(250);
/// After this time, a node that was silent has detected whether it was replaced.
const SUSPECT_NODE_TIME: Duration = Duration::from_secs(10);

/// The fields of CLUSTER INFO that change with the nodes and their slots. Most other fields count messages.
const CHANGE_INDICATORS: [&str; 4] =
    ["cluster_known_nodes:", "cluster_size:", "cluster_slots_ok:", "cluster_current_epoch:"];

const ASKING: &str = "asking for the cluster's map";
const ASKING_NEWS: &str = "asking a node for news of its cluster";

/// The state of the cluster as one node sees it.
pub(super) struct NodeView {
    by: Endpoint,
    /// The number of failovers and slot moves that the node has seen; 0 if it does not report it.
    epoch: u64,
    pub(super) map: ClusterMap,
}

impl NodeView {
    /// Returns the view with the later epoch.
    ///
    /// In the same epoch, the view of a node loses if the other view marks that node as failed. Otherwise the view with more
    /// owned slots wins: a returning node may be promoted before all others have reached it, and those mark it as failed for
    /// twice `cluster-node-timeout` (Redis, cluster_legacy.c: clearNodeFailureIfNeeded()).
    fn newer_of(self, other: Self) -> Self {
        let is_other = match self.epoch.cmp(&other.epoch) {
            Ordering::Equal if self.calls_failed(&other.by) => false,
            Ordering::Equal => {
                other.calls_failed(&self.by) || other.map.owned_slot_count() > self.map.owned_slot_count()
            }
            unequal => unequal.is_lt(),
        };
        if is_other { other } else { self }
    }

    fn calls_failed(&self, node: &Endpoint) -> bool {
        self.map.failed().any(|failed| failed.endpoint == *node)
    }
}

impl Cluster {
    /// Returns the map. Refreshes it if it is empty.
    pub(crate) async fn known_map(&self) -> Result<Arc<ClusterMap>> {
        if self.map.borrow().members().next().is_none() {
            self.refresh_if_old(true).boxed().await?;
        }
        Ok(self.map.borrow().clone())
    }

    /// Refreshes the map, unless a refresh ended less than [`MIN_REFRESH_INTERVAL`] ago or is running.
    ///
    /// With `wait`, the caller needs a new map: it waits for that interval and for a running refresh. All waiting callers
    /// share one refresh.
    pub(super) async fn refresh_if_old(&self, wait: bool) -> Result<()> {
        let came = Instant::now();
        let again = lock(&self.refreshed).map(|at| at + MIN_REFRESH_INTERVAL).filter(|again| *again > came);
        match again {
            Some(again) if wait => sleep_until(again).await,
            Some(_) => return Ok(()),
            None if !wait && self.refreshing.try_lock().is_err() => return Ok(()),
            None => {}
        }
        self.refresh_since(came).await
    }

    /// Asks known nodes for the owners of slots. Concurrent callers share one refresh.
    ///
    /// # Errors
    /// No node returns a map.
    pub async fn refresh(&self) -> Result<()> {
        self.refresh_since(Instant::now()).await
    }

    /// Refreshes the map, unless a refresh has ended after `came`. A caller that waits for its turn may wake up after
    /// another waiting caller has refreshed the map.
    async fn refresh_since(&self, came: Instant) -> Result<()> {
        let this = self.this.upgrade().expect("the caller holds the cluster");
        // Runs on the connections' runtime: the caller may be dropped, and others wait for the refresh.
        self.access.runtime.run(async move { this.refresh_here(came).await }).await
    }

    async fn refresh_here(&self, came: Instant) -> Result<()> {
        let _one_at_a_time = self.refreshing.lock().await;
        if lock(&self.refreshed).is_some_and(|at| at >= came) {
            return Ok(());
        }
        self.stale.store(false, Relaxed);
        let view = self.ask_any_node_except(None).await;
        *lock(&self.refreshed) = Some(Instant::now());
        self.apply_map(view.inspect_err(|_| self.mark_map_stale())?.map);
        Ok(())
    }

    pub(super) fn apply_map(&self, map: ClusterMap) {
        let members: BTreeSet<_> = map.members().map(|member| member.endpoint.clone()).collect();
        lock(&self.servers).retain(|endpoint, _| members.contains(endpoint));
        self.map.send_if_modified(|known| {
            let is_news = **known != map;
            if is_news {
                let (nodes, whole) = (members.len(), map.covers_all_slots());
                info!(nodes, primaries = map.primaries().count(), whole, "the cluster's map has changed");
                *known = Arc::new(map);
            }
            is_news
        });
    }

    /// Asks known nodes, except `one`, for their views. Asks suspect nodes only if no other node answers.
    pub(super) async fn ask_any_node_except(&self, one: Option<&Endpoint>) -> Result<NodeView> {
        let (mut trusted, mut doubted) = self.known_nodes();
        for nodes in [&mut trusted, &mut doubted] {
            nodes.retain(|node| Some(node) != one);
        }
        match self.ask_any_of(trusted).await {
            Err(_) if !doubted.is_empty() => self.ask_any_of(doubted).await,
            answer => answer,
        }
    }

    /// Returns the nodes to ask: those of the map in random order, then the other seeds. Nodes that are suspect or have
    /// failed are in the second list.
    fn known_nodes(&self) -> (Vec<Endpoint>, Vec<Endpoint>) {
        let map = self.map.borrow().clone();
        let mut known: Vec<_> = map.members().map(|member| member.endpoint.clone()).collect();
        known.shuffle(&mut rand::rng());
        let is_new = |seed: &&Endpoint| map.members().all(|member| member.endpoint != **seed);
        known.extend(self.seeds.iter().filter(is_new).cloned());
        let mut doubted = lock(&self.doubted);
        doubted.retain(|_, since| since.elapsed() < SUSPECT_NODE_TIME);
        let has_failed = |endpoint: &Endpoint| map.failed().any(|member| member.endpoint == *endpoint);
        known.into_iter().partition(|endpoint| !doubted.contains_key(endpoint) && !has_failed(endpoint))
    }

    /// Asks several nodes, and returns the newest view of the first that answer.
    ///
    /// A single node may be wrong: a node without a connection to the others does not detect its replacement. The old owner
    /// of a moved slot is the last to detect the move. A node without any slots may have lost its cluster. Its view counts
    /// only if the map has never had a slot.
    async fn ask_any_of(&self, nodes: Vec<Endpoint>) -> Result<NodeView> {
        let ask = |endpoint: Endpoint| async move { self.ask(&endpoint).await };
        let mut answers = iter(nodes).map(ask).buffer_unordered(MAX_CONCURRENT_QUERIES);
        let (mut best, mut lone, mut worst, mut answered) =
            (None::<NodeView>, None::<NodeView>, None::<Error>, 0);
        // Each query has its own time limit, so there is none before the first answer.
        let mut until = Instant::now() + NEVER;
        while let Ok(Some(answer)) = timeout_at(until, answers.next()).await {
            match answer {
                Ok(view) if view.map.owned_slot_count() == 0 => lone = Some(view),
                Ok(view) => {
                    (answered, until) = (answered + 1, until.min(Instant::now() + OTHER_NODES_TIMEOUT));
                    best = Some(match best {
                        Some(best) => best.newer_of(view),
                        None => view,
                    });
                    let is_whole = best.as_ref().is_some_and(|best| best.map.covers_all_slots());
                    if answered >= if is_whole { MAX_CONCURRENT_QUERIES } else { MAX_NODES_QUERIED } {
                        break;
                    }
                }
                // An error that an operator has to repair is more useful than that of an unreachable node.
                Err(error) if worst.as_ref().is_none_or(|worst| worst.is_transient()) => worst = Some(error),
                Err(_) => {}
            }
        }
        let forgetful = lone.is_some();
        let lone = lone.filter(|_| self.map.borrow().owned_slot_count() == 0);
        let nobody = || match worst {
            Some(error) => error,
            None if forgetful => Error::new(
                ErrorKind::Unavailable,
                "the nodes that answer list no slots, so their answers are ignored",
            ),
            None => Error::invalid("a cluster needs at least one host"),
        };
        best.or(lone).ok_or_else(nobody)
    }

    async fn ask(&self, endpoint: &Endpoint) -> Result<NodeView> {
        let late = |_| Error::new(ErrorKind::Timeout, format!("{endpoint} does not answer"));
        timeout(NODE_QUERY_TIMEOUT, self.ask_without_timeout(endpoint))
            .await
            .unwrap_or_else(|error| Err(late(error)))
    }

    async fn ask_without_timeout(&self, endpoint: &Endpoint) -> Result<NodeView> {
        let (server, mut questions) = (self.server(endpoint), pipe());
        for what in ["SHARDS", "INFO"] {
            questions.cmd("CLUSTER").arg(what);
        }
        let answers = server.call_each(ASKING, &questions).await;
        let [shards, info] = <[_; 2]>::try_from(answers).expect("each question has an answer");
        let owners = async || {
            let answer = server.call(ASKING, cmd("CLUSTER").arg("SLOTS")).await?;
            Ok::<_, Error>(ClusterMap::read_slots(&answer, endpoint))
        };
        let map = match shards {
            Ok(answer) => match self.read_shards(&answer, endpoint)? {
                Some(map) if map.is_disputed() => match owners().await {
                    Ok(Some(owners)) => Some(map.resolve_owners(&owners)),
                    _ => Some(map),
                },
                map => map,
            },
            Err(error) if error.code().is_none() => return Err(error),
            Err(shards) => owners().await.map_err(|_| not_a_cluster(endpoint, shards))?,
        };
        let map = map.ok_or_else(|| no_map(endpoint));
        // Without the right to CLUSTER INFO, every view has epoch 0.
        let epoch = info.ok().and_then(|info| epoch_in(&info)).unwrap_or_default();
        Ok(NodeView { by: endpoint.clone(), epoch, map: map? })
    }

    /// Reads an answer to CLUSTER SHARDS.
    ///
    /// # Errors
    /// The connection uses TLS, but the answer has no TLS ports.
    fn read_shards(&self, answer: &Value, endpoint: &Endpoint) -> Result<Option<ClusterMap>> {
        let map = ClusterMap::read_shards(answer, endpoint, self.access.tls.is_some());
        if map.is_none()
            && self.access.tls.is_some()
            && ClusterMap::read_shards(answer, endpoint, false).is_some()
        {
            let message =
                format!("{endpoint} names no TLS port of the cluster's nodes: set tls-cluster yes on them");
            return Err(Error::new(ErrorKind::Tls, message));
        }
        Ok(map)
    }

    /// Asks another node for the current role of a node. A node without other nodes is a primary. If the node is now a
    /// replica, the map of the answer becomes the current map, as it has the replacement.
    ///
    /// # Errors
    /// No other node answers.
    pub async fn query_role_of(&self, name: &str, endpoint: &Endpoint) -> Result<NodeRole> {
        if self.map().borrow().members().all(|member| member.id == name) {
            return Ok(NodeRole::Primary);
        }
        let Ok(view) = self.ask_any_node_except(Some(endpoint)).boxed().await else {
            let message = format!("no other node of the cluster reports the role of {endpoint}");
            return Err(Error::new(ErrorKind::Unavailable, message));
        };
        let role = view.map.role_of(name);
        if role == NodeRole::Replica {
            self.apply_map(view.map);
        }
        Ok(role)
    }

    /// Asks one node in this interval for changes, and marks the map as stale after each. Never returns.
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
                    self.mark_map_stale();
                }
                // Asks another node next, and treats its first answer as a change.
                Err(_) => (asked, before) = (None, None),
            }
            tokio::time::sleep(every).await;
        }
    }

    /// Returns the [`CHANGE_INDICATORS`] of a node. Returns `None` if the node refuses, as a permission may be missing.
    async fn signs_of(&self, endpoint: &Endpoint) -> Result<Option<Vec<String>>> {
        match self.server(endpoint).call(ASKING_NEWS, cmd("CLUSTER").arg("INFO")).await {
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

fn no_map(endpoint: &Endpoint) -> Error {
    let message =
        format!("{endpoint} does not name the owners of the cluster's slots: was a cluster created?");
    Error::new(ErrorKind::Unavailable, message)
}

/// Returns the current epoch in an answer to CLUSTER INFO, which grows with each failover and slot move.
fn epoch_in(info: &Value) -> Option<u64> {
    let info = redis::from_redis_value_ref::<String>(info).ok()?;
    info.lines().find_map(|line| line.strip_prefix("cluster_current_epoch:")?.trim().parse().ok())
}

fn signs_in(info: &str) -> Vec<String> {
    let is_sign = |line: &&str| CHANGE_INDICATORS.iter().any(|sign| line.starts_with(sign));
    info.lines().filter(is_sign).map(str::to_owned).collect()
}

/// Adds advice to the error of a server that has no cluster commands.
fn not_a_cluster(endpoint: &Endpoint, error: Error) -> Error {
    let text = error.to_string();
    let advice = if text.contains("cluster support disabled") {
        "is not part of a cluster: its URL begins with redis://, or rediss://"
    } else if text.contains("unknown command") {
        "is not a server of a cluster; the URL of a sentinel begins with redis+sentinel://"
    } else {
        return error;
    };
    Error::new(ErrorKind::Unsupported, format!("{endpoint} {advice} ({text})"))
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn at(port: u16) -> Endpoint {
        Endpoint::Tcp { host: "h".into(), port }
    }

    /// Returns the view of the node on port `by`, in which `primary` owns all slots and has this health.
    fn view(by: u16, epoch: u64, primary: u16, health: &str) -> NodeView {
        let node = [
            ("id", text(&primary.to_string())),
            ("port", Value::Int(primary.into())),
            ("endpoint", text("h")),
            ("role", text("master")),
            ("health", text(health)),
        ];
        let node = Value::Array(node.into_iter().flat_map(|(name, value)| [text(name), value]).collect());
        let slots = Value::Array(vec![Value::Int(0), Value::Int(16_383)]);
        let shard = vec![text("slots"), slots, text("nodes"), Value::Array(vec![node])];
        let answer = Value::Array(vec![Value::Array(shard)]);
        let map = ClusterMap::read_shards(&answer, &at(by), false).expect("a map");
        NodeView { by: at(by), epoch, map }
    }

    #[test]
    fn a_node_that_another_of_the_same_epoch_calls_failed_is_vouched_for_by_a_third_alone() {
        for (one, other, taken) in [
            (view(1, 7, 9, "online"), view(2, 8, 9, "fail"), 2),
            (view(1, 8, 9, "online"), view(2, 8, 9, "fail"), 1),
            (view(9, 8, 9, "online"), view(2, 8, 9, "fail"), 2),
            (view(9, 9, 9, "online"), view(2, 8, 9, "fail"), 9),
            (view(1, 8, 9, "online"), view(2, 8, 9, "online"), 1),
        ] {
            let (one_by, other_by) = (one.by.clone(), other.by.clone());
            assert_eq!(one.newer_of(other).by, at(taken), "{one_by} and {other_by}");
        }
        assert_eq!(view(2, 8, 9, "fail").newer_of(view(1, 8, 9, "online")).by, at(1));
        assert_eq!(view(2, 8, 9, "fail").newer_of(view(9, 8, 9, "online")).by, at(2));
    }
}
