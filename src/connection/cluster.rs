//! A cluster: who owns which slot, and the way there.
//!
//! Not `redis`' cluster client: it repeats calls by itself, and our scripts want to be told that they are repeated.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use futures::stream::iter;
use futures::{FutureExt, StreamExt};
use rand::seq::SliceRandom;
use redis::{Cmd, Value, cmd, pipe};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

use crate::connection::access::Access;
use crate::connection::address::Address;
use crate::connection::cluster_map::ClusterMap;
use crate::connection::endpoint::Endpoint;
use crate::connection::place::Place;
use crate::connection::server::{Seat, Server};
use crate::error::{Error, ErrorKind, Redirect, Result};
use crate::lock::lock;
use crate::log::{debug, info};

/// For so long a call is sent on by nodes that know better, or is tried again while its keys are on their way: that is a
/// matter of milliseconds. Beyond, it is the caller's patience that counts.
const ON_THE_WAY: Duration = Duration::from_millis(250);
/// From one try to the next, by half of it more or less.
const TURN: Duration = Duration::from_millis(4);
/// Nodes that are asked for the map at the same time.
const ASKED_AT_ONCE: usize = 3;
/// A node that says nothing for so long is not waited for.
const ASKED_WITHIN: Duration = Duration::from_secs(2);
/// Calls that find the map old ask for another no more often than this.
const REFRESH_EVERY: Duration = Duration::from_millis(250);
/// A node that was silent has learnt by then whether it was replaced.
const DOUBTED_FOR: Duration = Duration::from_secs(10);
/// The servers of a cluster, found by asking those that are known.
pub(crate) struct Cluster {
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
    pub(crate) fn new(seeds: Vec<Endpoint>, access: Arc<Access>, answer_within: Duration) -> Self {
        Self {
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
        }
    }

    /// From now on the losses and returns of nodes are said.
    pub(crate) fn report(&self) {
        self.reported.store(true, Ordering::Relaxed);
    }

    /// What is known at present, and news of it.
    pub(crate) fn map(&self) -> watch::Receiver<Arc<ClusterMap>> {
        self.map.subscribe()
    }

    /// Something has shown that the map is old: whoever needs it next asks for another.
    pub(crate) fn suspect(&self) {
        self.stale.store(true, Ordering::Relaxed);
        self.suspected.notify_one();
    }

    /// When something has shown so since it was last waited for.
    pub(crate) async fn suspected(&self) {
        self.suspected.notified().await;
    }

    pub(crate) fn is_suspect(&self) -> bool {
        self.stale.load(Ordering::Relaxed)
    }

    /// Makes a call at the owner of a slot. Where nodes send it on it follows; nothing was executed then.
    ///
    /// A call that the owner has not answered when another owns the slot counts as unanswered.
    pub(crate) async fn at<T, F>(&self, slot: u16, call: impl Fn(Seat) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let (mut seat, until) = (self.owner(slot).await?.seat(), Instant::now() + ON_THE_WAY);
        for turn in 0_u32.. {
            let answer = self.made_at(slot, &seat, call(seat.clone())).await;
            let Err(error) = &answer else { return answer };
            match error.redirect() {
                Some(redirect) => seat = self.follow(redirect, &seat)?,
                // Some of the slot's keys are there, and some are not.
                None if error.code() == Some("TRYAGAIN") => {}
                None => {
                    if error
                        .code()
                        .is_none_or(|code| matches!(code, "CLUSTERDOWN" | "READONLY" | "MASTERDOWN"))
                    {
                        self.suspect();
                    }
                    return answer;
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

    /// Sends commands to the owners of their slots, in one request to each. What is sent on is sent again by itself.
    pub(crate) async fn each(&self, doing: &str, commands: &[(u16, Cmd)]) -> Vec<Result<Value>> {
        let mut by_owner = BTreeMap::<_, Vec<_>>::new();
        for (place, (slot, _)) in commands.iter().enumerate() {
            let owner = self.map.borrow().owner(*slot).cloned();
            by_owner.entry(owner).or_default().push(place);
        }
        let requests = by_owner.into_iter().map(|(owner, places)| async move {
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

    async fn one(&self, doing: &str, (slot, command): &(u16, Cmd)) -> Result<Value> {
        self.at(*slot, |seat| async move { seat.call(doing, command).await }).await
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
        let (seat, first) = (self.server(owner).seat(), commands[places[0]].0);
        let sent = async { Ok(seat.call_each(doing, &pipeline).await) };
        let answers = self.made_at(first, &seat, sent).await;
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
        seat.server().trust().believed(&endpoint, left, doubt, call).await
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
        let Some(to) = Endpoint::announced(&redirect.to, &asked) else {
            let message = format!("{asked} sends calls of slot {} to what is no address", redirect.slot);
            return Err(Error::new(ErrorKind::Server, message));
        };
        let seat = self.server(&to).seat();
        if redirect.once {
            return Ok(seat.asking());
        }
        debug!(slot = redirect.slot, from = %asked, %to, "the slot has moved");
        self.suspect();
        self.map.send_modify(|map| *map = Arc::new(map.with_owner(redirect.slot, &to)));
        Ok(seat)
    }

    /// A server of the cluster.
    pub(crate) fn server(&self, endpoint: &Endpoint) -> Server {
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
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn servers(&self) -> Vec<Server> {
        lock(&self.servers).values().cloned().collect()
    }

    /// All nodes.
    pub(crate) async fn members(&self) -> Result<Vec<Server>> {
        let map = self.known_map().await?;
        Ok(map.members().map(|member| self.server(&member.endpoint)).collect())
    }

    /// Asks for the map if none is known.
    pub(crate) async fn known_map(&self) -> Result<Arc<ClusterMap>> {
        if self.map.borrow().members().next().is_none() {
            self.refresh_if_old(true).boxed().await?;
        }
        Ok(self.map.borrow().clone())
    }

    /// Asks for the map, unless somebody just has; who needs it waits for whoever does.
    async fn refresh_if_old(&self, wait: bool) -> Result<()> {
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

    fn learn(&self, map: ClusterMap) {
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
    fn known_nodes(&self) -> (Vec<Endpoint>, Vec<Endpoint>) {
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
    async fn ask(&self, endpoint: &Endpoint) -> Result<ClusterMap> {
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

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cluster({:?})", self.seeds)
    }
}
