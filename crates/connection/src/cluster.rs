//! Calls to a Redis Cluster, at the owners of slots.
//!
//! The cluster client of `redis` is not used: it repeats calls by itself, but the scripts of keylapse need to know that a
//! call is a repeat.

mod discovery;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use redis::{Cmd, Value, pipe};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::address::{Address, ConnectOptions, Endpoint};
use crate::cluster_map::{CLUSTER_SLOTS, ClusterMap};
use crate::error::{Error, ErrorKind, Redirect, Result};
use crate::log::debug;
use crate::panics::lock;
use crate::replacement::reject_if_replaced;
use crate::server::Server;
use crate::topology::Layout;

/// The time limit for following redirects and for retries while keys are being migrated. Both normally take milliseconds.
/// After that, the caller decides about retries.
const MAX_REDIRECT_TIME: Duration = Duration::from_millis(250);
/// The pause between tries, with 50 % jitter.
const REDIRECT_PAUSE: Duration = Duration::from_millis(4);

/// The servers of a cluster, discovered by asking known nodes.
#[derive(Default)]
pub struct Cluster {
    this: Weak<Self>,
    seeds: Vec<Endpoint>,
    access: Arc<ConnectOptions>,
    /// True if losses and returns of servers are logged.
    reported: AtomicBool,
    answer_within: Duration,
    map: watch::Sender<Arc<ClusterMap>>,
    servers: Mutex<HashMap<Endpoint, Server>>,
    /// True if an answer has contradicted the map.
    stale: AtomicBool,
    suspected: Notify,
    /// Nodes that were silent for long, with the time of detection. Other nodes are asked before them.
    doubted: Mutex<HashMap<Endpoint, Instant>>,
    /// The time of the last refresh of the map.
    refreshed: Mutex<Option<Instant>>,
    refreshing: tokio::sync::Mutex<()>,
}

impl Cluster {
    /// Creates a cluster from some of its nodes. Connects at the first call; `answer_within` limits the wait for each
    /// answer.
    pub fn new(seeds: Vec<Endpoint>, access: Arc<ConnectOptions>, answer_within: Duration) -> Arc<Self> {
        Arc::new_cyclic(|this| Self { this: this.clone(), seeds, access, answer_within, ..Self::default() })
    }

    /// Returns a receiver of the map and its changes.
    pub fn map(&self) -> watch::Receiver<Arc<ClusterMap>> {
        self.map.subscribe()
    }

    /// Marks the map as stale, so that the next call that needs it refreshes it.
    pub fn mark_map_stale(&self) {
        self.stale.store(true, Ordering::Relaxed);
        self.suspected.notify_one();
    }

    /// Waits until the map is marked as stale. Returns immediately if it was marked since the last wait.
    pub async fn wait_until_map_stale(&self) {
        self.suspected.notified().await;
    }

    /// Returns whether the map is marked as stale.
    pub(crate) fn is_suspect(&self) -> bool {
        self.stale.load(Ordering::Relaxed)
    }

    /// Waits for the answer to a call, and rejects it if another server may own the slot by now.
    async fn reject_if_replaced<T>(
        &self,
        slot: u16,
        server: &Server,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let endpoint = server.last_address().endpoint();
        let mut map = self.map();
        let left = async {
            // After a redirect, the server may own the slot before the map shows it.
            let _ = map.wait_for(|map| map.owner(slot) == Some(&endpoint)).await;
            let _ = map.wait_for(|map| map.owner(slot).is_some_and(|owner| *owner != endpoint)).await;
        };
        let doubt = || {
            lock(&self.doubted).insert(endpoint.clone(), Instant::now());
            self.mark_map_stale();
        };
        reject_if_replaced(server.replacement_guard(), &endpoint, left, doubt, call).await
    }

    /// Returns the owner of a slot. Refreshes the map if the slot has no owner, or the map is stale.
    async fn owner(&self, slot: u16) -> Result<Server> {
        let known = |cluster: &Self| cluster.map.borrow().owner(slot).cloned();
        let mut owner = known(self);
        if owner.is_none() || self.is_suspect() {
            let refreshed = self.refresh_if_old(owner.is_none()).boxed().await;
            owner = known(self);
            if owner.is_none() {
                refreshed?;
            }
        }
        let none = || {
            let message = format!("no node of the cluster serves slot {slot} now");
            Error::new(ErrorKind::Unavailable, message)
        };
        owner.map(|owner| self.server(&owner)).ok_or_else(none)
    }

    /// Returns the target of a redirect. A permanent redirect also changes the map.
    fn follow(&self, redirect: &Redirect, from: &Server) -> Result<Server> {
        let asked = from.last_address().endpoint();
        if redirect.slot >= CLUSTER_SLOTS {
            let message = format!(
                "{asked} redirects calls of slot {}, but a cluster has only {CLUSTER_SLOTS} slots",
                redirect.slot
            );
            return Err(Error::new(ErrorKind::Server, message));
        }
        let Some(to) = Endpoint::announced(&redirect.to, &asked) else {
            let message = format!("{asked} redirects calls of slot {} to an invalid address", redirect.slot);
            return Err(Error::new(ErrorKind::Server, message));
        };
        let server = from.redirect_to(self.server(&to));
        if redirect.once {
            return Ok(server.asking());
        }
        debug!(slot = redirect.slot, from = %asked, %to, "the slot has moved");
        self.mark_map_stale();
        self.map.send_modify(|map| *map = Arc::new(map.with_owner(redirect.slot, &to)));
        Ok(server)
    }

    /// Returns a server of the cluster. All callers share its connections.
    pub fn server(&self, endpoint: &Endpoint) -> Server {
        let mut servers = lock(&self.servers);
        let new = || {
            let address = Address::at(endpoint.clone(), self.access.clone());
            if self.reported.load(Ordering::Relaxed) {
                address.outage.enable_log();
            }
            Server::at(address, self.answer_within)
        };
        servers.entry(endpoint.clone()).or_insert_with(new).clone()
    }

    async fn one(&self, doing: &str, (slot, command): &(u16, Cmd)) -> Result<Value> {
        self.at(*slot, false, |server| async move { server.call(doing, command).await }).await
    }

    /// Sends the commands with the indices `places` to one owner, in one request. Redirected commands are sent again one by
    /// one.
    async fn together(
        &self,
        doing: &str,
        owner: &Endpoint,
        commands: &[(u16, Cmd)],
        places: &[usize],
    ) -> Vec<Result<Value>> {
        let mut pipeline = pipe();
        for place in places {
            pipeline.add_command(commands[*place].1.clone());
        }
        let (server, first) = (self.server(owner), commands[places[0]].0);
        let sent = async { Ok(server.call_each(doing, &pipeline).await) };
        let answers = self.reject_if_replaced(first, &server, sent).await;
        let answers = answers.unwrap_or_else(|error| vec![Err(error); places.len()]);
        if answers.iter().any(|answer| answer.as_ref().is_err_and(|error| error.code().is_none())) {
            self.mark_map_stale();
        }
        let settled = places.iter().zip(answers).map(|(place, answer)| async move {
            match answer {
                Err(error) if error.redirect().is_some() || error.code() == Some("TRYAGAIN") => {
                    self.one(doing, &commands[*place]).await
                }
                answer => answer,
            }
        });
        join_all(settled).await
    }
}

/// Each server holds some of the slots.
impl Layout for Cluster {
    /// Follows redirects, after which the redirecting node has executed nothing. A call counts as unanswered if another
    /// server becomes the owner of the slot before the answer arrives.
    async fn at<T, F>(&self, slot: u16, waits: bool, call: impl Fn(Server) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut server = self.owner(slot).await?.on_wait_connection(waits);
        let until = Instant::now() + MAX_REDIRECT_TIME;
        for turn in 0_u32.. {
            let answer = self.reject_if_replaced(slot, &server, call(server.clone())).await;
            let Err(error) = &answer else { return answer };
            match error.redirect() {
                Some(redirect) => server = self.follow(redirect, &server)?,
                // The slot is being migrated: the server has some keys of the call, but not all.
                None if error.code() == Some("TRYAGAIN") => {}
                None => {
                    if error.is_of_a_replica() || error.code().is_none_or(|code| code == "CLUSTERDOWN") {
                        self.mark_map_stale();
                    }
                    return answer.map_err(Error::transient_during_failover);
                }
            }
            if Instant::now() >= until {
                break;
            }
            // The first redirect is mostly right, and is followed without a pause. Later ones mean that the nodes disagree,
            // until they have exchanged their states.
            if turn > 0 || error.redirect().is_none() {
                tokio::time::sleep(REDIRECT_PAUSE.mul_f64(rand::random_range(0.5..1.5))).await;
            }
        }
        self.mark_map_stale();
        let message = format!("slot {slot} is being migrated between two nodes of the cluster");
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    /// Sends a redirected command again, in a request of its own.
    async fn each(&self, doing: &str, commands: Vec<(u16, Cmd)>) -> Vec<Result<Value>> {
        let commands = &commands;
        let owners = by_owner(commands.iter().map(|(slot, _)| self.map.borrow().owner(*slot).cloned()));
        let requests = owners.into_iter().map(|(owner, places)| async move {
            let answers = match owner {
                None => join_all(places.iter().map(|place| self.one(doing, &commands[*place]))).await,
                Some(owner) => self.together(doing, &owner, commands, &places).await,
            };
            places.into_iter().zip(answers).collect::<Vec<_>>()
        });
        let mut answers: Vec<_> = join_all(requests).await.into_iter().flatten().collect();
        answers.sort_by_key(|(place, _)| *place);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    async fn members(&self) -> Result<Vec<(Server, Option<u16>)>> {
        let map = self.known_map().await?;
        let lowest: HashMap<_, _> = map.owners().into_iter().collect();
        let members = map.members().map(|member| &member.endpoint);
        Ok(members.map(|at| (self.server(at), lowest.get(at).copied())).collect())
    }

    async fn primaries(&self) -> Result<Vec<(Server, u16)>> {
        let map = self.known_map().await?;
        Ok(map.owners().into_iter().map(|(owner, lowest)| (self.server(owner), lowest)).collect())
    }

    fn known_primaries(&self) -> Vec<Server> {
        let map = self.map.borrow().clone();
        map.primaries().map(|member| self.server(&member.endpoint)).collect()
    }

    fn connected_servers(&self) -> Vec<Server> {
        lock(&self.servers).values().cloned().collect()
    }

    async fn holders(&self, slots: &[u16]) -> Result<Vec<(Address, Vec<usize>)>> {
        self.refresh().await?;
        let map = self.map.borrow().clone();
        let owners = by_owner(slots.iter().map(|slot| map.owner(*slot)));
        let held = owners
            .into_iter()
            .filter_map(|(owner, places)| Some((self.server(owner?).last_address(), places)));
        Ok(held.collect())
    }

    async fn wait_until_moved(&self, held: &[(Endpoint, u16)]) {
        let is_elsewhere = |map: &Arc<ClusterMap>| {
            held.iter().any(|(at, slot)| map.owner(*slot).is_some_and(|owner| owner != at))
        };
        let _ = self.map().wait_for(is_elsewhere).await; // cannot fail: `self` holds the sender
    }

    fn report(&self) {
        self.reported.store(true, Ordering::Relaxed);
    }
}

/// Groups the indices of a list by the owners at them.
fn by_owner<T: Ord>(owners: impl Iterator<Item = T>) -> BTreeMap<T, Vec<usize>> {
    let mut places = BTreeMap::<_, Vec<_>>::new();
    owners.enumerate().for_each(|(place, owner)| places.entry(owner).or_default().push(place));
    places
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cluster({:?})", self.seeds)
    }
}
