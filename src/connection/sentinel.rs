//! Sentinels: who is the primary at present.

mod watch;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use redis::{Value, cmd, pipe};
use tokio::sync::watch as channel;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::connection::Node;
use crate::connection::access::Access;
use crate::connection::address::Address;
use crate::connection::endpoint::Endpoint;
use crate::connection::outage::Outage;
use crate::connection::password::OF_SENTINELS;
use crate::connection::place::Place;
use crate::connection::sentinel::watch::watch;
use crate::connection::trust::SILENCE;
use crate::error::{Error, ErrorKind, Result};
use crate::escape::plain;
use crate::lock::lock;
use crate::log::{debug, info, warn};
use crate::log_throttle::LogThrottle;

/// A sentinel that says nothing for so long is not waited for.
const ASKED_WITHIN: Duration = Duration::from_secs(1);
/// When one has answered, the others are waited for so long.
const OTHERS_WITHIN: Duration = Duration::from_millis(500);
/// What a server says of itself sooner than this was true when the sentinels named it, or just after.
const AT_ONCE: Duration = Duration::from_millis(100);
/// A server that is named as the primary says within this that it is. One that hangs is replaced, and says so when it goes
/// on all the same.
const VERIFIED_WITHIN: Duration = SILENCE;
/// More than these are not remembered.
const MOST: usize = 100;

/// The sentinels of one primary, and where it was found last.
pub(crate) struct Sentinels {
    /// What they call it.
    name: String,
    /// How one gets into the servers.
    access: Arc<Access>,
    /// And into the sentinels.
    own_access: Arc<Access>,
    /// Whether the primary answers, wherever it is: one piece of news for its readers.
    outage: Arc<Outage>,
    known: Mutex<BTreeMap<Endpoint, Arc<Node>>>,
    present: channel::Sender<Option<Endpoint>>,
    /// When the sentinels were asked who have named that.
    asked: Mutex<Option<Instant>>,
    /// How often that has changed. Read by every call.
    moves: AtomicU64,
    disagreement: LogThrottle,
    watcher: Mutex<Option<JoinHandle<()>>>,
}

/// What speaks for a server: the later failover, and then the most sentinels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Support {
    epoch: u64,
    votes: usize,
}

impl Sentinels {
    pub(crate) fn new(
        name: String,
        sentinels: &[Endpoint],
        access: Arc<Access>,
        own_access: Arc<Access>,
    ) -> Self {
        let all = Self {
            name,
            access,
            own_access,
            outage: Arc::default(),
            known: Mutex::default(),
            present: channel::Sender::default(),
            asked: Mutex::default(),
            moves: AtomicU64::default(),
            disagreement: LogThrottle::default(),
            watcher: Mutex::default(),
        };
        all.learn(sentinels.iter().cloned());
        all
    }

    /// Where the primary was found last; before that, whom to ask.
    pub(crate) fn present(&self) -> Address {
        let endpoint = self.present.borrow().clone();
        match endpoint {
            Some(endpoint) => self.at(&endpoint),
            None => self.at(lock(&self.known).keys().next().expect("there is a sentinel")),
        }
    }

    pub(crate) fn outage(&self) -> &Arc<Outage> {
        &self.outage
    }

    pub(crate) fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    pub(crate) fn is_at(&self, endpoint: &Endpoint) -> bool {
        self.present.borrow().as_ref() == Some(endpoint)
    }

    /// When the primary is elsewhere.
    pub(crate) async fn left(&self, endpoint: &Endpoint) {
        let mut present = self.present.subscribe();
        let _ = present.wait_for(|present| present.as_ref() != Some(endpoint)).await; // the sender is ours
    }

    /// When another server has taken the place of the one that is known, or of the first that will be.
    pub(crate) async fn replaced(&self) {
        let mut present = self.present.subscribe();
        let known = present.wait_for(Option::is_some).await.ok().and_then(|known| known.clone());
        let _ = present.wait_for(|present| *present != known).await; // the sender is ours
    }

    /// The primary was silent for long: whether it is one still is asked before it is asked for anything else.
    pub(crate) fn doubt(&self) {
        self.moves.fetch_add(1, Ordering::Relaxed);
    }

    fn at(&self, endpoint: &Endpoint) -> Address {
        let address = Address::at(endpoint.clone(), self.access.clone());
        Address { outage: self.outage.clone(), ..address }
    }

    fn sentinel(&self, endpoint: &Endpoint) -> Address {
        Address::at(endpoint.clone(), self.own_access.clone())
    }

    /// Asks who is the primary, and that one whether it is. Connections are made for that, so its type must not name itself.
    pub(crate) fn find_primary(&self) -> BoxFuture<'_, Result<Address>> {
        self.ask_for_primary().boxed()
    }

    async fn ask_for_primary(&self) -> Result<Address> {
        let asked = Instant::now();
        let named = self.named().await?;
        self.find_among(named, asked).await
    }

    async fn find_among(&self, mut named: Vec<(Endpoint, Support)>, asked: Instant) -> Result<Address> {
        // Who became the primary last: only that sentinel knows at first that has made it one.
        named.sort_by_key(|(_, support)| std::cmp::Reverse(*support));
        self.complain_of_disagreement(&named);
        let mut refusal = None;
        for (endpoint, _) in named {
            let (address, verified) = (self.at(&endpoint), Instant::now());
            match self.verify(&address).await {
                // It may have hung meanwhile, and have been replaced.
                Ok(()) if verified.elapsed() >= AT_ONCE && !self.is_still_named(&endpoint).await => {
                    return Err(self.outrun(&address));
                }
                Ok(()) if self.settle_on(&endpoint, asked) => return Ok(address),
                Ok(()) => return Err(self.outrun(&address)),
                Err(error) => {
                    self.lost(&address, &error);
                    refusal.get_or_insert(error);
                }
            }
        }
        Err(refusal.unwrap_or_else(|| self.unknown()))
    }

    async fn is_still_named(&self, endpoint: &Endpoint) -> bool {
        let named = self.named().await.unwrap_or_default();
        named.into_iter().max_by_key(|(_, support)| *support).is_some_and(|(first, _)| first == *endpoint)
    }

    fn lost(&self, address: &Address, error: &Error) {
        if error.is_of_the_line() {
            self.outage().failed(address, error);
        }
    }

    /// Unless who asked later has found another. Such news may come while one that hung still answers.
    fn settle_on(&self, endpoint: &Endpoint, asked: Instant) -> bool {
        let mut last = lock(&self.asked);
        if last.is_some_and(|last| last > asked) {
            return self.is_at(endpoint);
        }
        *last = Some(asked);
        self.present.send_if_modified(|present| {
            let is_news = present.as_ref() != Some(endpoint);
            if is_news {
                match present.replace(endpoint.clone()) {
                    Some(before) => info!(name = %self.name, primary = %endpoint, %before, "another server is the primary"),
                    None => debug!(name = %self.name, primary = %endpoint, "found the primary"),
                }
                self.moves.fetch_add(1, Ordering::Relaxed);
            }
            is_news
        });
        true
    }

    fn outrun(&self, address: &Address) -> Error {
        let message = format!("{address} is not the primary {} any more", self.name);
        Error::new(ErrorKind::Unreachable, message)
    }

    /// Whom the sentinels name, and with how much support. One whose machine is gone says nothing at all, and is not waited
    /// for once another has answered.
    async fn named(&self) -> Result<Vec<(Endpoint, Support)>> {
        let nodes: Vec<_> = lock(&self.known).iter().map(|(at, node)| (at.clone(), node.clone())).collect();
        let mut asked: FuturesUnordered<_> =
            nodes.iter().map(|(at, node)| self.ask_in_time(at, node)).collect();
        let (mut named, mut worst, mut answered) = (HashMap::<_, Support>::new(), None::<Error>, false);
        // Each of them is answered in its time.
        let mut until = Instant::now() + 2 * ASKED_WITHIN;
        while let Ok(Some(answer)) = timeout_at(until, asked.next()).await {
            match answer {
                Ok(one) => {
                    answered = true;
                    until = until.min(Instant::now() + OTHERS_WITHIN);
                    let Some((endpoint, epoch)) = one else { continue };
                    let support = named.entry(endpoint).or_default();
                    *support = Support { epoch: support.epoch.max(epoch), votes: support.votes + 1 };
                }
                Err(error) if worst.as_ref().is_none_or(Error::is_transient) => worst = Some(error),
                Err(_) => {}
            }
        }
        match worst {
            _ if !named.is_empty() => Ok(named.into_iter().collect()),
            Some(error) if !answered => Err(error),
            None if asked.is_empty() => Err(self.unknown()),
            worst => Err(self.unknown_to_some(worst)),
        }
    }

    async fn ask_in_time(&self, at: &Endpoint, node: &Node) -> Result<Option<(Endpoint, u64)>> {
        let late = |_| Error::new(ErrorKind::Timeout, format!("sentinel {at} does not answer"));
        let answer = timeout(ASKED_WITHIN, self.ask(at, node)).await.unwrap_or_else(|error| Err(late(error)));
        answer.map_err(|error| if error.kind() == ErrorKind::Auth { refused_by(at, &error) } else { error })
    }

    /// Those that may know it do not answer: that may pass.
    fn unknown_to_some(&self, others: Option<Error>) -> Error {
        let others = others.map_or_else(|| "no answer".into(), |error| error.to_string());
        let name = plain(&self.name, 100);
        let message =
            format!("the sentinels that answer know no primary called {name}, and others do not ({others})");
        Error::new(ErrorKind::Unavailable, message)
    }

    fn unknown(&self) -> Error {
        Error::invalid(format!(
            "no sentinel knows a primary called {}: SENTINEL MASTERS lists those that there are",
            plain(&self.name, 100)
        ))
    }

    /// Whom one sentinel names, and since which epoch; learns from it which others there are.
    async fn ask(&self, at: &Endpoint, sentinel: &Node) -> Result<Option<(Endpoint, u64)>> {
        let mut questions = pipe();
        for what in ["MASTER", "GET-MASTER-ADDR-BY-NAME", "SENTINELS"] {
            questions.cmd("SENTINEL").arg(what).arg(&self.name);
        }
        let answers = sentinel.call_each(&format!("asking sentinel {at}"), &questions).await;
        let Ok([state, named, others]) = <[_; 3]>::try_from(answers) else { return Ok(None) };
        let named = match named {
            Err(error) if error.code() == Some("ERR") && error.to_string().contains("unknown command") => {
                let message =
                    format!("{at} is no sentinel: the URL of a server begins with redis:// ({error})");
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
            named => redis::from_redis_value::<Option<(String, u16)>>(named?).ok().flatten(),
        };
        // Who may not be asked for these is still good for its own word.
        others.iter().for_each(|others| self.learn(others_in(others, at)));
        let epoch = state.ok().and_then(epoch_in).unwrap_or_default();
        Ok(named.and_then(|(host, port)| Some((Endpoint::of(&host, port, at)?, epoch))))
    }

    fn learn(&self, sentinels: impl IntoIterator<Item = Endpoint>) {
        let mut known = lock(&self.known);
        for endpoint in sentinels {
            if known.len() < MOST {
                let place = Place::Fixed(self.sentinel(&endpoint));
                known.entry(endpoint).or_insert_with(|| Arc::new(Node::new(place, ASKED_WITHIN)));
            }
        }
    }

    /// A stale sentinel may name a server that is a replica by now, or gone.
    async fn verify(&self, address: &Address) -> Result<()> {
        let node = Node::new(Place::Fixed(address.clone()), VERIFIED_WITHIN);
        let role = match timeout(VERIFIED_WITHIN, node.call("asking for the role", &cmd("ROLE"))).await {
            Ok(Err(error)) if error.kind() == ErrorKind::Permission => return Ok(()),
            Ok(answer) => answer,
            Err(_) => Err(Error::new(ErrorKind::Timeout, "no answer")),
        };
        let role = role.map_err(|error| {
            let message = format!("the sentinels name {address} as the primary {}, but: {error}", self.name);
            Error::new(error.kind(), message).with_code(error.code())
        })?;
        match redis::from_redis_value::<(String, Value, Value)>(role) {
            Ok((role, ..)) if role == "master" => Ok(()),
            _ => {
                let message =
                    format!("the sentinels name {address} as the primary {}, but it is a replica", self.name);
                Err(Error::new(ErrorKind::Unavailable, message))
            }
        }
    }

    fn complain_of_disagreement(&self, named: &[(Endpoint, Support)]) {
        if named.len() < 2 {
            self.disagreement.is_over();
            return;
        }
        let all: BTreeSet<_> =
            named.iter().map(|(endpoint, Support { votes, .. })| format!("{endpoint} ({votes})")).collect();
        let error = Error::new(ErrorKind::Unavailable, format!("{all:?}"));
        if self.disagreement.should_log(&error) {
            warn!(
                name = %self.name, named = ?all,
                "the sentinels disagree who is the primary: that of the last failover is taken. Do they see each other?"
            );
        }
    }

    /// Has somebody notice when another server becomes the primary: the old one takes writes for some time, and loses
    /// them. It lives as long as this, on the runtime that needed it first, or next.
    pub(crate) fn keep_watching(self: &Arc<Self>) {
        let mut watcher = lock(&self.watcher);
        if watcher.as_ref().is_none_or(JoinHandle::is_finished) {
            let watched = Arc::downgrade(self);
            *watcher = Some(tokio::spawn(watch(watched)));
        }
    }

    /// Looks closer only if another server is named. Whether they agree.
    async fn find_if_news(&self) -> Result<bool> {
        let asked = Instant::now();
        let named = self.named().await?;
        let present = self.present.borrow().clone();
        match &named[..] {
            [(only, _)] if present.as_ref() == Some(only) => Ok(true),
            all => {
                let agree = all.len() == 1;
                self.find_among(named, asked).boxed().await.map(|_| agree)
            }
        }
    }
}

/// Sentinels have a login of their own, which the servers' settings say nothing of.
fn refused_by(sentinel: &Endpoint, error: &Error) -> Error {
    let code = error.code().map(|code| format!(" ({code})")).unwrap_or_default();
    let message = format!(
        "sentinel {sentinel} refuses the login{code}; check sentinel_user and sentinel_password of the URL, or {OF_SENTINELS}"
    );
    Error::new(ErrorKind::Auth, message).with_code(error.code())
}

/// When a primary became one, as a sentinel's answer to SENTINEL MASTER counts failovers.
fn epoch_in(state: Value) -> Option<u64> {
    redis::from_redis_value::<HashMap<String, String>>(state).ok()?.get("config-epoch")?.parse().ok()
}

/// The endpoints in an answer to SENTINEL SENTINELS.
fn others_in(answer: &Value, asked: &Endpoint) -> Vec<Endpoint> {
    let others = redis::from_redis_value_ref::<Vec<HashMap<String, String>>>(answer).unwrap_or_default();
    let endpoint = |other: &HashMap<String, String>| {
        Endpoint::of(other.get("ip")?, other.get("port")?.parse().ok()?, asked)
    };
    others.iter().filter_map(endpoint).collect()
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sentinels({})", self.name)
    }
}
