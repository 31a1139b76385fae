//! Who owns what: asked of any node, when something has shown that the map is old. Nodes that come or go unnoticed by calls
//! show by CLUSTER INFO, which one node is asked for again and again.

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
use crate::cluster_map::{ClusterMap, Standing};
use crate::error::{Error, ErrorKind, Result};
use crate::log::info;
use crate::panics::lock;

/// Nodes that are asked for the map at the same time.
const ASKED_AT_ONCE: usize = 3;
/// Nodes that are asked at most, while by their answers some slots have no owner.
const ASKED_AT_MOST: usize = 9;
/// A node that says nothing for so long is not waited for.
const ASKED_WITHIN: Duration = Duration::from_secs(2);
/// When one has answered, the others are waited for so long.
const OTHERS_WITHIN: Duration = Duration::from_millis(100);
const NEVER: Duration = Duration::from_secs(86_400);
/// Calls that find the map old ask for another no more often than this.
const REFRESH_EVERY: Duration = Duration::from_millis(250);
/// A node that was silent has learnt by then whether it was replaced.
const DOUBTED_FOR: Duration = Duration::from_secs(10);

/// The fields of CLUSTER INFO that change with the nodes and their slots. Most others count messages.
const SIGNS: [&str; 4] =
    ["cluster_known_nodes:", "cluster_size:", "cluster_slots_ok:", "cluster_current_epoch:"];

const ASKING: &str = "asking for the cluster's map";
const ASKING_NEWS: &str = "asking a node for news of its cluster";

/// What a node says of its cluster.
pub(super) struct Told {
    by: Endpoint,
    /// How many failovers and moves it knows of; 0 if it does not say.
    epoch: u64,
    pub(super) map: ClusterMap,
}

impl Told {
    /// The later of both; of the same epoch, the one in which more slots have an owner. A node that returns may be promoted
    /// before all others have reached it: those call it failed for twice `cluster-node-timeout` (Redis, cluster_legacy.c:
    /// clearNodeFailureIfNeeded()). But a node that another calls failed does not speak for itself.
    fn or_later(self, other: Self) -> Self {
        let is_other = match self.epoch.cmp(&other.epoch) {
            Ordering::Equal if self.calls_failed(&other.by) => false,
            Ordering::Equal => other.calls_failed(&self.by) || other.map.owned() > self.map.owned(),
            unequal => unequal.is_lt(),
        };
        if is_other { other } else { self }
    }

    fn calls_failed(&self, node: &Endpoint) -> bool {
        self.map.failed().any(|failed| failed.endpoint == *node)
    }
}

impl Cluster {
    /// Asks for the map if none is known.
    pub(crate) async fn known_map(&self) -> Result<Arc<ClusterMap>> {
        if self.map.borrow().members().next().is_none() {
            self.refresh_if_old(true).boxed().await?;
        }
        Ok(self.map.borrow().clone())
    }

    /// Asks for the map, unless somebody just has. Who cannot go on without another waits for whoever asks, and until one may
    /// ask again: all of them make one question of it.
    pub(super) async fn refresh_if_old(&self, wait: bool) -> Result<()> {
        let came = Instant::now();
        let again = lock(&self.refreshed).map(|at| at + REFRESH_EVERY).filter(|again| *again > came);
        match again {
            Some(again) if wait => sleep_until(again).await,
            Some(_) => return Ok(()),
            None if !wait && self.refreshing.try_lock().is_err() => return Ok(()),
            None => {}
        }
        self.refresh_since(came).await
    }

    /// Asks known nodes who owns what. One refresh at a time: who comes while one is made waits for it, and takes it.
    pub async fn refresh(&self) -> Result<()> {
        self.refresh_since(Instant::now()).await
    }

    /// Asks for the map unless another caller has done so since. A caller that waits for its turn may wake up late,
    /// when the others that waited with it have the answer.
    async fn refresh_since(&self, came: Instant) -> Result<()> {
        let this = self.this.upgrade().expect("who asks holds it");
        // Where connections live: the caller may be polled no more, and others wait for this.
        self.access.home.run(async move { this.refresh_here(came).await }).await
    }

    async fn refresh_here(&self, came: Instant) -> Result<()> {
        let _one_at_a_time = self.refreshing.lock().await;
        if lock(&self.refreshed).is_some_and(|at| at >= came) {
            return Ok(());
        }
        self.stale.store(false, Relaxed);
        let told = self.ask_anyone_but(None).await;
        *lock(&self.refreshed) = Some(Instant::now());
        self.learn(told.inspect_err(|_| self.suspect())?.map);
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

    /// What a node that is known says, other than this one.
    pub(super) async fn ask_anyone_but(&self, one: Option<&Endpoint>) -> Result<Told> {
        let (mut trusted, mut doubted) = self.known_nodes();
        for nodes in [&mut trusted, &mut doubted] {
            nodes.retain(|node| Some(node) != one);
        }
        match self.ask_any_of(trusted).await {
            Err(_) if !doubted.is_empty() => self.ask_any_of(doubted).await,
            answer => answer,
        }
    }

    /// Those that are known, in any order, and the seeds that are not among them; and those of all these that may be wrong, or
    /// have failed.
    fn known_nodes(&self) -> (Vec<Endpoint>, Vec<Endpoint>) {
        let map = self.map.borrow().clone();
        let mut known: Vec<_> = map.members().map(|member| member.endpoint.clone()).collect();
        known.shuffle(&mut rand::rng());
        let is_new = |seed: &&Endpoint| map.members().all(|member| member.endpoint != **seed);
        known.extend(self.seeds.iter().filter(is_new).cloned());
        let mut doubted = lock(&self.doubted);
        doubted.retain(|_, since| since.elapsed() < DOUBTED_FOR);
        let has_failed = |endpoint: &Endpoint| map.failed().any(|member| member.endpoint == *endpoint);
        known.into_iter().partition(|endpoint| !doubted.contains_key(endpoint) && !has_failed(endpoint))
    }

    /// What the first of them say who answer: the one that knows of most failovers and moves. One that is cut off from the others
    /// does not know who has taken its place, and one that a slot has left is told last. One that knows of no slots at all may
    /// have forgotten its cluster: it counts only where nobody ever knew of any.
    async fn ask_any_of(&self, nodes: Vec<Endpoint>) -> Result<Told> {
        let ask = |endpoint: Endpoint| async move { self.ask(&endpoint).await };
        let mut answers = iter(nodes).map(ask).buffer_unordered(ASKED_AT_ONCE);
        let (mut best, mut lone, mut worst, mut answered) = (None::<Told>, None::<Told>, None::<Error>, 0);
        // Each node is answered for in its time.
        let mut until = Instant::now() + NEVER;
        while let Ok(Some(answer)) = timeout_at(until, answers.next()).await {
            match answer {
                Ok(told) if told.map.owned() == 0 => lone = Some(told),
                Ok(told) => {
                    (answered, until) = (answered + 1, until.min(Instant::now() + OTHERS_WITHIN));
                    best = Some(match best {
                        Some(best) => best.or_later(told),
                        None => told,
                    });
                    let is_whole = best.as_ref().is_some_and(|best| best.map.is_whole());
                    if answered >= if is_whole { ASKED_AT_ONCE } else { ASKED_AT_MOST } {
                        break;
                    }
                }
                // What an operator has to change says more than a node that is away.
                Err(error) if worst.as_ref().is_none_or(|worst| worst.is_transient()) => worst = Some(error),
                Err(_) => {}
            }
        }
        let forgetful = lone.is_some();
        let lone = lone.filter(|_| self.map.borrow().owned() == 0);
        let nobody = || match worst {
            Some(error) => error,
            None if forgetful => Error::new(
                ErrorKind::Unavailable,
                "the nodes that answer know of no slots, and are not believed",
            ),
            None => Error::invalid("a cluster needs at least one host"),
        };
        best.or(lone).ok_or_else(nobody)
    }

    /// What one node says.
    async fn ask(&self, endpoint: &Endpoint) -> Result<Told> {
        let late = |_| Error::new(ErrorKind::Timeout, format!("{endpoint} does not answer"));
        timeout(ASKED_WITHIN, self.ask_patiently(endpoint)).await.unwrap_or_else(|error| Err(late(error)))
    }

    async fn ask_patiently(&self, endpoint: &Endpoint) -> Result<Told> {
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
                    Ok(Some(owners)) => Some(map.settled_by(&owners)),
                    _ => Some(map),
                },
                map => map,
            },
            Err(error) if error.code().is_none() => return Err(error),
            Err(shards) => owners().await.map_err(|_| not_a_cluster(endpoint, shards))?,
        };
        let map = map.ok_or_else(|| no_map(endpoint));
        // Who may not ask for that takes the first answer.
        let epoch = info.ok().and_then(|info| epoch_in(&info)).unwrap_or_default();
        Ok(Told { by: endpoint.clone(), epoch, map: map? })
    }

    /// What a node says that has been asked over TLS names the ports where its cluster speaks that, or nobody can connect.
    fn read_shards(&self, answer: &Value, endpoint: &Endpoint) -> Result<Option<ClusterMap>> {
        let map = ClusterMap::read_shards(answer, endpoint, self.access.tls.is_some());
        if map.is_none()
            && self.access.tls.is_some()
            && ClusterMap::read_shards(answer, endpoint, false).is_some()
        {
            let message = format!(
                "{endpoint} names no port of the cluster's nodes that speaks TLS: set tls-cluster yes on them"
            );
            return Err(Error::new(ErrorKind::Tls, message));
        }
        Ok(map)
    }

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
    let message = format!("{endpoint} does not say who owns the slots of the cluster: has one been made?");
    Error::new(ErrorKind::Unavailable, message)
}

/// How many failovers and moves a node knows of, in its answer to CLUSTER INFO.
fn epoch_in(info: &Value) -> Option<u64> {
    let info = redis::from_redis_value_ref::<String>(info).ok()?;
    info.lines().find_map(|line| line.strip_prefix("cluster_current_epoch:")?.trim().parse().ok())
}

fn signs_in(info: &str) -> Vec<String> {
    let is_sign = |line: &&str| SIGNS.iter().any(|sign| line.starts_with(sign));
    info.lines().filter(is_sign).map(str::to_owned).collect()
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

    /// Returns the answer of the node on port `by`: `primary` has all slots, and this health.
    fn told(by: u16, epoch: u64, primary: u16, health: &str) -> Told {
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
        Told { by: at(by), epoch, map }
    }

    #[test]
    fn a_node_that_another_of_the_same_epoch_calls_failed_is_vouched_for_by_a_third_alone() {
        for (one, other, taken) in [
            (told(1, 7, 9, "online"), told(2, 8, 9, "fail"), 2),
            (told(1, 8, 9, "online"), told(2, 8, 9, "fail"), 1),
            (told(9, 8, 9, "online"), told(2, 8, 9, "fail"), 2),
            (told(9, 9, 9, "online"), told(2, 8, 9, "fail"), 9),
            (told(1, 8, 9, "online"), told(2, 8, 9, "online"), 1),
        ] {
            let (one_by, other_by) = (one.by.clone(), other.by.clone());
            assert_eq!(one.or_later(other).by, at(taken), "{one_by} and {other_by}");
        }
        assert_eq!(told(2, 8, 9, "fail").or_later(told(1, 8, 9, "online")).by, at(1));
        assert_eq!(told(2, 8, 9, "fail").or_later(told(9, 8, 9, "online")).by, at(2));
    }
}
