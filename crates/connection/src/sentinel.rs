//! Sentinels: who is the primary at present.

mod asking;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;

use redis::{Value, cmd};
use tokio::sync::watch as channel;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::address::{Access, Address, Endpoint};
use crate::error::{Error, ErrorKind, Result};
use crate::log::{LogThrottle, debug, info, warn};
use crate::node::Node;
use crate::panics::lock;
use crate::sentinel::asking::{ASKED_WITHIN, Support, watch};
use crate::server::Place;
use crate::trust::{Outage, SILENCE, Trust, believed};

/// What a server says of itself sooner than this was true when the sentinels named it, or just after.
const AT_ONCE: Duration = Duration::from_millis(100);
/// A server that is named as the primary says within this that it is. One that hangs is replaced, and says so when it goes
/// on all the same.
const VERIFIED_WITHIN: Duration = SILENCE;
/// More than these are not remembered.
const MOST: usize = 100;

/// The sentinels of one primary, and where it was found last.
#[derive(Default)]
pub struct Sentinels {
    this: Weak<Self>,
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

impl Sentinels {
    pub(crate) fn new(
        name: String,
        sentinels: &[Endpoint],
        access: Arc<Access>,
        own_access: Arc<Access>,
    ) -> Arc<Self> {
        let all =
            Arc::new_cyclic(|this| Self { this: this.clone(), name, access, own_access, ..Self::default() });
        all.learn(sentinels.iter().cloned());
        all
    }

    /// The answer to a call of the primary, unless another server has taken its place since, or it was silent for so long that
    /// it may have been replaced: then it is asked whether it is one still, before it is asked for anything else.
    pub(crate) async fn believed<T>(
        &self,
        trust: Option<&Trust>,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let doubt = || _ = self.moves.fetch_add(1, Ordering::Relaxed);
        believed(trust, &self.present().endpoint(), self.replaced(), doubt, call).await
    }

    /// When another server has taken the place of the one that is known, or of the first that will be.
    async fn replaced(&self) {
        let mut present = self.present.subscribe();
        let known = present.wait_for(Option::is_some).await.ok().and_then(|known| known.clone());
        let _ = present.wait_for(|present| *present != known).await; // the sender is ours
    }

    fn at(&self, endpoint: &Endpoint) -> Address {
        let address = Address::at(endpoint.clone(), self.access.clone());
        Address { outage: self.outage.clone(), ..address }
    }

    fn sentinel(&self, endpoint: &Endpoint) -> Address {
        Address::at(endpoint.clone(), self.own_access.clone())
    }

    /// Asks who is the primary, and that one whether it is. Connections are made for that, so its type must not name itself.
    pub fn find_primary(&self) -> BoxFuture<'_, Result<Address>> {
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
            self.outage.failed(address, error);
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

    fn learn(&self, sentinels: impl IntoIterator<Item = Endpoint>) {
        let mut known = lock(&self.known);
        for endpoint in sentinels {
            if known.len() < MOST {
                let place = Arc::new(self.sentinel(&endpoint));
                known.entry(endpoint).or_insert_with(|| Node::new(place, ASKED_WITHIN));
            }
        }
    }

    /// A stale sentinel may name a server that is a replica by now, or gone.
    async fn verify(&self, address: &Address) -> Result<()> {
        let node = Node::new(Arc::new(address.clone()), VERIFIED_WITHIN);
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
    fn keep_watching(&self) {
        let mut watcher = lock(&self.watcher);
        if watcher.as_ref().is_none_or(JoinHandle::is_finished) {
            *watcher = Some(tokio::spawn(watch(self.this.clone())));
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

/// The primary, wherever it is.
impl Place for Sentinels {
    /// Before it was found, whom to ask.
    fn present(&self) -> Address {
        let endpoint = self.present.borrow().clone();
        match endpoint {
            Some(endpoint) => self.at(&endpoint),
            None => self.at(lock(&self.known).keys().next().expect("there is a sentinel")),
        }
    }

    fn outage(&self) -> &Arc<Outage> {
        &self.outage
    }

    fn find(&self) -> BoxFuture<'_, Result<Address>> {
        self.keep_watching();
        self.find_primary()
    }

    fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    fn is_at(&self, endpoint: &Endpoint) -> bool {
        self.present.borrow().as_ref() == Some(endpoint)
    }

    fn left<'a>(&'a self, endpoint: &'a Endpoint) -> BoxFuture<'a, ()> {
        let mut present = self.present.subscribe();
        async move { _ = present.wait_for(|present| present.as_ref() != Some(endpoint)).await }.boxed()
    }

    fn sentinels(&self) -> Option<Arc<Sentinels>> {
        self.this.upgrade()
    }
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sentinels({})", self.name)
    }
}
