//! Finds the current primary by asking its sentinels.

mod queries;

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

use crate::address::{Address, ConnectOptions, Endpoint};
use crate::error::{Error, ErrorKind, Result};
use crate::log::{LogThrottle, debug, info, warn};
use crate::panics::lock;
use crate::replacement::{Availability, MAX_TRUSTED_SILENCE, ReplacementGuard, reject_if_replaced};
use crate::sentinel::queries::{PrimaryVotes, SENTINEL_QUERY_TIMEOUT, watch};
use crate::server::ServerLocator;
use crate::server_connection::ServerConnection;

/// If a server takes longer than this to confirm its role, the sentinels are asked again. It may have hung and been
/// replaced.
const MAX_UNCONFIRMED_ANSWER_TIME: Duration = Duration::from_millis(100);
/// The time limit for a server to confirm that it is the primary. A server that hangs longer may have been replaced, and
/// would still answer that it is the primary when it resumes.
const VERIFY_TIMEOUT: Duration = MAX_TRUSTED_SILENCE;
/// The most sentinels that are remembered.
const MAX_SENTINELS: usize = 100;

/// The sentinels of one primary, and its last known address.
#[derive(Default)]
pub struct Sentinels {
    this: Weak<Self>,
    /// The name of the primary in the configuration of the sentinels.
    name: String,
    /// The options for connections to servers.
    access: Arc<ConnectOptions>,
    /// The options for connections to sentinels.
    own_access: Arc<ConnectOptions>,
    /// The availability of the primary, which is independent of its address.
    outage: Arc<Availability>,
    known: Mutex<BTreeMap<Endpoint, Arc<ServerConnection>>>,
    present: channel::Sender<Option<Endpoint>>,
    /// The time of the query that found the present primary.
    asked: Mutex<Option<Instant>>,
    /// The number of changes of the primary. Every call reads it.
    moves: AtomicU64,
    disagreement: LogThrottle,
    watcher: Mutex<Option<JoinHandle<()>>>,
}

impl Sentinels {
    pub(crate) fn new(
        name: String,
        sentinels: &[Endpoint],
        access: Arc<ConnectOptions>,
        own_access: Arc<ConnectOptions>,
    ) -> Arc<Self> {
        let all =
            Arc::new_cyclic(|this| Self { this: this.clone(), name, access, own_access, ..Self::default() });
        all.learn(sentinels.iter().cloned());
        all
    }

    /// Waits for the answer to a call, and rejects it if the primary may have been replaced. After a long silence, the next
    /// call verifies first that the server is still the primary.
    pub(crate) async fn reject_if_replaced<T>(
        &self,
        trust: Option<&ReplacementGuard>,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let doubt = || _ = self.moves.fetch_add(1, Ordering::Relaxed);
        reject_if_replaced(trust, &self.last_address().endpoint(), self.wait_until_replaced(), doubt, call)
            .await
    }

    /// Waits until another server replaces the primary. Waits first for a primary, if none is known.
    async fn wait_until_replaced(&self) {
        let mut present = self.present.subscribe();
        let known = present.wait_for(Option::is_some).await.ok().and_then(|known| known.clone());
        let _ = present.wait_for(|present| *present != known).await; // cannot fail: `self` holds the sender
    }

    fn at(&self, endpoint: &Endpoint) -> Address {
        let address = Address::at(endpoint.clone(), self.access.clone());
        Address { outage: self.outage.clone(), ..address }
    }

    fn sentinel(&self, endpoint: &Endpoint) -> Address {
        Address::at(endpoint.clone(), self.own_access.clone())
    }

    /// Asks the sentinels for the primary, and verifies its role at the server. The future is boxed, as opening a connection
    /// calls this, and the type must not contain itself.
    ///
    /// # Errors
    /// No sentinel answers or has the primary, or no named server confirms that it is the primary.
    pub fn find_primary(&self) -> BoxFuture<'_, Result<Address>> {
        self.ask_for_primary().boxed()
    }

    async fn ask_for_primary(&self) -> Result<Address> {
        let asked = Instant::now();
        let named = self.query_primaries().await?;
        self.find_among(named, asked).await
    }

    async fn find_among(&self, mut named: Vec<(Endpoint, PrimaryVotes)>, asked: Instant) -> Result<Address> {
        // The latest failover comes first: initially only the sentinel that made it names the new primary.
        named.sort_by_key(|(_, support)| std::cmp::Reverse(*support));
        self.log_disagreement(&named);
        let mut refusal = None;
        for (endpoint, _) in named {
            let (address, verified) = (self.at(&endpoint), Instant::now());
            match self.verify(&address).await {
                // The server may have hung, and may have been replaced before it answered.
                Ok(())
                    if verified.elapsed() >= MAX_UNCONFIRMED_ANSWER_TIME
                        && !self.is_still_named(&endpoint).await =>
                {
                    return Err(self.superseded_error(&address));
                }
                Ok(()) if self.accept_primary(&endpoint, asked) => return Ok(address),
                Ok(()) => return Err(self.superseded_error(&address)),
                Err(error) => {
                    self.record_failure(&address, &error);
                    refusal.get_or_insert(error);
                }
            }
        }
        Err(refusal.unwrap_or_else(|| self.unknown()))
    }

    async fn is_still_named(&self, endpoint: &Endpoint) -> bool {
        let named = self.query_primaries().await.unwrap_or_default();
        named.into_iter().max_by_key(|(_, support)| *support).is_some_and(|(first, _)| first == *endpoint)
    }

    fn record_failure(&self, address: &Address, error: &Error) {
        if error.is_connection_error() {
            self.outage.failed(address, error);
        }
    }

    /// Makes a server the current primary, unless a later query has found another. Returns whether it is the current
    /// primary. A server that hung may answer after a later query has found its replacement.
    fn accept_primary(&self, endpoint: &Endpoint, asked: Instant) -> bool {
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

    fn superseded_error(&self, address: &Address) -> Error {
        let message = format!("{address} is no longer the primary {}", self.name);
        Error::new(ErrorKind::Unreachable, message)
    }

    fn learn(&self, sentinels: impl IntoIterator<Item = Endpoint>) {
        let mut known = lock(&self.known);
        for endpoint in sentinels {
            if known.len() < MAX_SENTINELS {
                let place = Arc::new(self.sentinel(&endpoint));
                known.entry(endpoint).or_insert_with(|| ServerConnection::new(place, SENTINEL_QUERY_TIMEOUT));
            }
        }
    }

    /// Checks with ROLE that a server is a primary. A sentinel with an outdated view may name a replica, or a server that is
    /// down.
    async fn verify(&self, address: &Address) -> Result<()> {
        let node = ServerConnection::new(Arc::new(address.clone()), VERIFY_TIMEOUT);
        let role = match timeout(VERIFY_TIMEOUT, node.call("asking for the role", &cmd("ROLE"))).await {
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

    fn log_disagreement(&self, named: &[(Endpoint, PrimaryVotes)]) {
        if named.len() < 2 {
            self.disagreement.is_over();
            return;
        }
        let all: BTreeSet<_> = named
            .iter()
            .map(|(endpoint, PrimaryVotes { votes, .. })| format!("{endpoint} ({votes})"))
            .collect();
        let error = Error::new(ErrorKind::Unavailable, format!("{all:?}"));
        if self.disagreement.should_log(&error) {
            warn!(
                name = %self.name, named = ?all,
                "the sentinels disagree about the primary: using the one of the last failover. Check that they reach each other"
            );
        }
    }

    /// Starts the task that detects failovers, unless it runs. It detects them early, as the old primary accepts writes for
    /// some time, and loses them. The task ends with `self`, or with the runtime that needed it first; the next call
    /// restarts it.
    fn keep_watching(&self) {
        let mut watcher = lock(&self.watcher);
        if watcher.as_ref().is_none_or(JoinHandle::is_finished) {
            *watcher = Some(tokio::spawn(watch(self.this.clone())));
        }
    }

    /// Asks the sentinels, and verifies the primary only if they name another server. Returns whether they agree.
    async fn check_for_failover(&self) -> Result<bool> {
        let asked = Instant::now();
        let named = self.query_primaries().await?;
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

/// Finds the primary, wherever it is.
impl ServerLocator for Sentinels {
    /// Returns the last known address of the primary, or a sentinel's address if none is known.
    fn last_address(&self) -> Address {
        let endpoint = self.present.borrow().clone();
        match endpoint {
            Some(endpoint) => self.at(&endpoint),
            None => self.at(lock(&self.known).keys().next().expect("there is a sentinel")),
        }
    }

    fn outage(&self) -> &Arc<Availability> {
        &self.outage
    }

    fn find(&self) -> BoxFuture<'_, Result<Address>> {
        self.keep_watching();
        self.find_primary()
    }

    fn move_count(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    fn is_at(&self, endpoint: &Endpoint) -> bool {
        self.present.borrow().as_ref() == Some(endpoint)
    }

    fn wait_until_moved<'a>(&'a self, endpoint: &'a Endpoint) -> BoxFuture<'a, ()> {
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
