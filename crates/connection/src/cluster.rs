//! A cluster: who owns which slot, and the way there.
//!
//! Not `redis`' cluster client: it repeats calls by itself, and our scripts want to be told that they are repeated.

mod batch;
mod discovery;
mod standing;
mod watching;

pub use self::standing::Standing;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::access::Access;
use crate::address::Address;
use crate::cluster_map::ClusterMap;
use crate::endpoint::Endpoint;
use crate::error::{Error, ErrorKind, Redirect, Result};
use crate::lock::lock;
use crate::log::debug;
use crate::place::Place;
use crate::server::{Seat, Server};
use crate::slot::SLOTS;
use crate::trust::believed;

/// For so long a call is sent on by nodes that know better, or is tried again while its keys are on their way: that is a
/// matter of milliseconds. Beyond, it is the caller's patience that counts.
const ON_THE_WAY: Duration = Duration::from_millis(250);
/// From one try to the next, by half of it more or less.
const TURN: Duration = Duration::from_millis(4);

/// The servers of a cluster, found by asking those that are known.
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
    pub fn new(seeds: Vec<Endpoint>, access: Arc<Access>, answer_within: Duration) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            seeds,
            access,
            reported: AtomicBool::default(),
            answer_within,
            map: watch::Sender::new(Arc::new(ClusterMap::empty())),
            servers: Mutex::default(),
            stale: AtomicBool::default(),
            suspected: Notify::default(),
            doubted: Mutex::default(),
            refreshed: Mutex::default(),
            refreshing: tokio::sync::Mutex::default(),
        })
    }

    /// From now on the losses and returns of nodes are said.
    pub fn report(&self) {
        self.reported.store(true, Ordering::Relaxed);
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

    pub fn is_suspect(&self) -> bool {
        self.stale.load(Ordering::Relaxed)
    }

    /// Makes a call at the owner of a slot. Where nodes send it on it follows; nothing was executed then.
    ///
    /// A call that the owner has not answered when another owns the slot counts as unanswered.
    pub async fn at<T, F>(&self, slot: u16, call: impl Fn(Seat) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        self.from(self.owner(slot).await?.seat(), slot, call).await
    }

    /// The same on the connections for calls that wait.
    pub async fn at_waiting<T, F>(&self, slot: u16, call: impl Fn(Seat) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        self.from(self.owner(slot).await?.seat().waiting(), slot, call).await
    }

    async fn from<T, F>(&self, mut seat: Seat, slot: u16, call: impl Fn(Seat) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let until = Instant::now() + ON_THE_WAY;
        for turn in 0_u32.. {
            let answer = self.made_at(slot, &seat, call(seat.clone())).await;
            let Err(error) = &answer else { return answer };
            match error.redirect() {
                Some(redirect) => seat = self.follow(redirect, &seat)?,
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

    /// The answer to a call, or that there is none any more.
    async fn made_at<T>(&self, slot: u16, seat: &Seat, call: impl Future<Output = Result<T>>) -> Result<T> {
        let endpoint = seat.server().place().present().endpoint();
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
        believed(seat.trust(), &endpoint, left, doubt, call).await
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
    fn follow(&self, redirect: &Redirect, from: &Seat) -> Result<Seat> {
        let asked = from.server().place().present().endpoint();
        if redirect.slot >= SLOTS {
            let message =
                format!("{asked} sends calls of slot {} to another, and no cluster has that", redirect.slot);
            return Err(Error::new(ErrorKind::Server, message));
        }
        let Some(to) = Endpoint::announced(&redirect.to, &asked) else {
            let message = format!("{asked} sends calls of slot {} to what is no address", redirect.slot);
            return Err(Error::new(ErrorKind::Server, message));
        };
        let seat = from.at(self.server(&to));
        if redirect.once {
            return Ok(seat.asking());
        }
        debug!(slot = redirect.slot, from = %asked, %to, "the slot has moved");
        self.suspect();
        self.map.send_modify(|map| *map = Arc::new(map.with_owner(redirect.slot, &to)));
        Ok(seat)
    }

    /// A server of the cluster.
    pub fn server(&self, endpoint: &Endpoint) -> Server {
        let mut servers = lock(&self.servers);
        let new = || {
            let address = Address::at(endpoint.clone(), self.access.clone());
            if self.reported.load(Ordering::Relaxed) {
                address.outage.report();
            }
            Server::new(&Place::Fixed(address), self.answer_within)
        };
        servers.entry(endpoint.clone()).or_insert_with(new).clone()
    }

    /// All that calls were made to, and whose connections are kept.
    pub fn servers(&self) -> Vec<Server> {
        lock(&self.servers).values().cloned().collect()
    }

    /// All nodes.
    pub async fn members(&self) -> Result<Vec<Server>> {
        let map = self.known_map().await?;
        Ok(map.members().map(|member| self.server(&member.endpoint)).collect())
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cluster({:?})", self.seeds)
    }
}
