//! A cluster: who owns which slot, and the way there.
//!
//! Not `redis`' cluster client: it repeats calls by itself, and our scripts want to be told that they are repeated.

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

use crate::address::{Access, Address, Endpoint};
use crate::cluster_map::{ClusterMap, SLOTS};
use crate::error::{Error, ErrorKind, Redirect, Result};
use crate::log::debug;
use crate::panics::lock;
use crate::server::Server;
use crate::topology::Layout;
use crate::trust::believed;

/// For so long a call is sent on by nodes that know better, or is tried again while its keys are on their way: that is a
/// matter of milliseconds. Beyond, it is the caller's patience that counts.
const ON_THE_WAY: Duration = Duration::from_millis(250);
/// From one try to the next, by half of it more or less.
const TURN: Duration = Duration::from_millis(4);

/// The servers of a cluster, found by asking those that are known.
#[derive(Default)]
pub struct Cluster {
    this: Weak<Self>,
    seeds: Vec<Endpoint>,
    /// How one gets into all of them.
    access: Arc<Access>,
    /// Whether somebody waits for them, and wants to read of it.
    reported: AtomicBool,
    answer_within: Duration,
    map: watch::Sender<Arc<ClusterMap>>,
    servers: Mutex<HashMap<Endpoint, Server>>,
    /// Something has shown that the map is old.
    stale: AtomicBool,
    suspected: Notify,
    /// Nodes that were silent for long: whether they are primaries still is for others to say.
    doubted: Mutex<HashMap<Endpoint, Instant>>,
    refreshed: Mutex<Option<Instant>>,
    refreshing: tokio::sync::Mutex<()>,
}

impl Cluster {
    /// A cluster of which these nodes are known. Nothing is connected before it is needed.
    pub fn new(seeds: Vec<Endpoint>, access: Arc<Access>, answer_within: Duration) -> Arc<Self> {
        Arc::new_cyclic(|this| Self { this: this.clone(), seeds, access, answer_within, ..Self::default() })
    }

    /// What is known at present, and news of it.
    pub fn map(&self) -> watch::Receiver<Arc<ClusterMap>> {
        self.map.subscribe()
    }

    /// Something has shown that the map is old: whoever needs it next asks for another.
    pub fn suspect(&self) {
        self.stale.store(true, Ordering::Relaxed);
        self.suspected.notify_one();
    }

    /// When something has shown so since it was last waited for.
    pub async fn suspected(&self) {
        self.suspected.notified().await;
    }

    /// Returns whether something has shown that the map is old.
    pub(crate) fn is_suspect(&self) -> bool {
        self.stale.load(Ordering::Relaxed)
    }

    /// The answer to a call, or that there is none any more.
    async fn believed<T>(
        &self,
        slot: u16,
        server: &Server,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let endpoint = server.present().endpoint();
        let mut map = self.map();
        let left = async {
            // Who follows a redirect may be where the map does not say yet.
            let _ = map.wait_for(|map| map.owner(slot) == Some(&endpoint)).await;
            let _ = map.wait_for(|map| map.owner(slot).is_some_and(|owner| *owner != endpoint)).await;
        };
        let doubt = || {
            lock(&self.doubted).insert(endpoint.clone(), Instant::now());
            self.suspect();
        };
        believed(server.trust(), &endpoint, left, doubt, call).await
    }

    /// The server that owns a slot. Asks for the map if nobody is known to, or it is said to be old.
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
            let message = format!("no node of the cluster serves slot {slot} at present");
            Error::new(ErrorKind::Unavailable, message)
        };
        owner.map(|owner| self.server(&owner)).ok_or_else(none)
    }

    /// Where a node has sent a call.
    fn follow(&self, redirect: &Redirect, from: &Server) -> Result<Server> {
        let asked = from.present().endpoint();
        if redirect.slot >= SLOTS {
            let message =
                format!("{asked} sends calls of slot {} to another, and no cluster has that", redirect.slot);
            return Err(Error::new(ErrorKind::Server, message));
        }
        let Some(to) = Endpoint::announced(&redirect.to, &asked) else {
            let message = format!("{asked} sends calls of slot {} to what is no address", redirect.slot);
            return Err(Error::new(ErrorKind::Server, message));
        };
        let server = from.or(self.server(&to));
        if redirect.once {
            return Ok(server.asking());
        }
        debug!(slot = redirect.slot, from = %asked, %to, "the slot has moved");
        self.suspect();
        self.map.send_modify(|map| *map = Arc::new(map.with_owner(redirect.slot, &to)));
        Ok(server)
    }

    /// A server of the cluster.
    pub fn server(&self, endpoint: &Endpoint) -> Server {
        let mut servers = lock(&self.servers);
        let new = || {
            let address = Address::at(endpoint.clone(), self.access.clone());
            if self.reported.load(Ordering::Relaxed) {
                address.outage.report();
            }
            Server::at(address, self.answer_within)
        };
        servers.entry(endpoint.clone()).or_insert_with(new).clone()
    }

    async fn one(&self, doing: &str, (slot, command): &(u16, Cmd)) -> Result<Value> {
        self.at(*slot, false, |server| async move { server.call(doing, command).await }).await
    }

    /// These of the commands, in one request.
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
        let answers = self.believed(first, &server, sent).await;
        let answers = answers.unwrap_or_else(|error| vec![Err(error); places.len()]);
        if answers.iter().any(|answer| answer.as_ref().is_err_and(|error| error.code().is_none())) {
            self.suspect();
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

/// Each server has some of the slots.
impl Layout for Cluster {
    /// Follows nodes that send a call on; nothing was executed then. A call that the owner has not answered when another owns
    /// the slot counts as unanswered.
    async fn at<T, F>(&self, slot: u16, waits: bool, call: impl Fn(Server) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut server = self.owner(slot).await?.waiting(waits);
        let until = Instant::now() + ON_THE_WAY;
        for turn in 0_u32.. {
            let answer = self.believed(slot, &server, call(server.clone())).await;
            let Err(error) = &answer else { return answer };
            match error.redirect() {
                Some(redirect) => server = self.follow(redirect, &server)?,
                // Some of the slot's keys are there, and some are not.
                None if error.code() == Some("TRYAGAIN") => {}
                None => {
                    if error.is_of_a_replica() || error.code().is_none_or(|code| code == "CLUSTERDOWN") {
                        self.suspect();
                    }
                    return answer.map_err(Error::until_the_primary_is_known);
                }
            }
            if Instant::now() >= until {
                break;
            }
            // The first that knows better mostly does. Otherwise they have to tell each other first.
            if turn > 0 || error.redirect().is_none() {
                tokio::time::sleep(TURN.mul_f64(rand::random_range(0.5..1.5))).await;
            }
        }
        self.suspect();
        let message = format!("slot {slot} is on its way from one node of the cluster to another");
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    /// What is sent on is sent again by itself.
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

    fn called(&self) -> Vec<Server> {
        lock(&self.servers).values().cloned().collect()
    }

    async fn holders(&self, slots: &[u16]) -> Result<Vec<(Address, Vec<usize>)>> {
        self.refresh().await?;
        let map = self.map.borrow().clone();
        let owners = by_owner(slots.iter().map(|slot| map.owner(*slot)));
        let held =
            owners.into_iter().filter_map(|(owner, places)| Some((self.server(owner?).present(), places)));
        Ok(held.collect())
    }

    async fn moved(&self, held: &[(Endpoint, u16)]) {
        let is_elsewhere = |map: &Arc<ClusterMap>| {
            held.iter().any(|(at, slot)| map.owner(*slot).is_some_and(|owner| owner != at))
        };
        let _ = self.map().wait_for(is_elsewhere).await; // the sender is ours
    }

    fn report(&self) {
        self.reported.store(true, Ordering::Relaxed);
    }
}

/// Places in a list, by who has them.
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
