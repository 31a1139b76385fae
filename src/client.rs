//! How a server is reached: what producers and listeners share.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::connection::{Endpoints, Home, Streams, Target};
use crate::error::{Error, Result};
use crate::rounds::{Rounds, VirtualTime};
use crate::wire::{DEFAULT_ANSWER_WITHIN, DEFAULT_NAMESPACE, Store, check_name};

/// The most patience: a repeat must find what the first call left behind.
const MAX_PATIENCE: Duration = Duration::from_secs(120);

/// A server, and how it is spoken to: shared by [`Schedule`](crate::Schedule)s and
/// [`Listener`](crate::Listener)s. Cheap to clone; clones share connections, of which each listener has its own.
/// Nothing is connected before it is needed.
///
/// Wherever a client is asked for, a URL will do, and gives one with the defaults.
///
/// ```no_run
/// use std::time::Duration;
/// use keylapse::{Client, Listener, Schedule};
///
/// # async fn connect() -> keylapse::Result<()> {
/// let client = Client::new("redis://127.0.0.1/")?
///     .namespace("billing")?
///     .patience(Duration::from_secs(10));
/// let schedule = Schedule::connect(client.clone()).await?;
/// let builder = Listener::builder(client);
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "each setting returns the changed client"]
pub struct Client {
    pub(crate) store: Store,
    pub(crate) answer_within: Duration,
    pub(crate) namespace: Arc<str>,
    pub(crate) patience: Duration,
    /// Set: it looks seldom; see [`ListenerBuilder::save_requests`](crate::ListenerBuilder::save_requests).
    pub(crate) saves_requests: bool,
    /// None: time is the system's.
    pub(crate) virtual_time: Option<Arc<dyn VirtualTime>>,
}

impl Client {
    /// A client of the server at a URL: `redis://[user:password@]host[:port][/db]`, `rediss://…` for TLS (with the
    /// feature `tls`), or `unix:///path`, with `valkey` in place of `redis` if you like. [`Servers`](crate::Servers) says
    /// the same in Rust, and has what URLs have no words for.
    ///
    /// A password that the URL does not say is taken from the environment: from `KEYLAPSE_REDIS_PASSWORD`, or from the
    /// file that `KEYLAPSE_REDIS_PASSWORD_FILE` names, which is read anew for each connection. Only one of them may be set.
    ///
    /// A cluster is `redis+cluster://[user:password@]h1:7000,h2:7001/`, by some of its nodes, and servers that Sentinel
    /// watches are `redis+sentinel://[user:password@]h1:26379,h2:26379/mymaster[/db]`, each with `rediss+…` for TLS. Any of
    /// the hosts may be down. The login at the sentinels is one of its own:
    /// `?sentinel_user=…&sentinel_password=…`, or `KEYLAPSE_SENTINEL_PASSWORD`, with `_FILE` or without.
    ///
    /// # Errors
    /// When the URL cannot be read, or says what cannot be; the message names the part.
    pub fn new(url: &str) -> Result<Self> {
        Ok(Self::over_target(&Target::parse(url)?))
    }

    /// A client of what a URL or a program has named.
    pub(crate) fn over_target(target: &Target) -> Self {
        Self::over(Store::new(target, DEFAULT_ANSWER_WITHIN))
    }

    pub(crate) fn over(store: Store) -> Self {
        Self {
            store,
            answer_within: DEFAULT_ANSWER_WITHIN,
            namespace: DEFAULT_NAMESPACE.into(),
            patience: Duration::from_secs(5),
            saves_requests: false,
            virtual_time: None,
        }
    }

    /// The same over streams that `open` opens, in place of the URL's host: for a tunnel, or a TLS stack of
    /// your own. User, password and database are still the URL's; with `rediss://`, TLS is spoken over them. It is called for each connection, of which a
    /// producer has up to two and a listener up to three, and again after each is lost; its errors are treated as
    /// a server that is away. Streams are opened on tokio runtimes of keylapse's own: a listener has one, and all schedules of
    /// a process share one.
    pub fn streams<F, S>(self, open: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let target = self.store.target().over(Streams::new(open));
        Self { store: Store::new(&target, self.answer_within), ..self }
    }

    /// The prefix of all names in Redis. Default: `keylapse`.
    ///
    /// # Errors
    /// When the prefix could not be part of a name.
    pub fn namespace(self, prefix: &str) -> Result<Self> {
        check_name("the namespace", prefix)?;
        Ok(Self { namespace: prefix.into(), ..self })
    }

    /// How long the server may take to answer one call. Default: 5 s.
    ///
    /// # Errors
    /// When it is zero.
    pub fn answer_within(self, limit: Duration) -> Result<Self> {
        if limit.is_zero() {
            return Err(Error::invalid("answer_within must be more than zero"));
        }
        Ok(Self { store: Store::new(self.store.target(), limit), answer_within: limit, ..self })
    }

    /// For how long a producer's call is repeated while it has no answer. Default: 5 s, at most 2 min: a
    /// repeat must find what the first call left behind.
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience: patience.min(MAX_PATIENCE), ..self }
    }

    /// Refuses what leads elsewhere than it says.
    pub(crate) fn check(&self) -> Result<()> {
        let target = self.store.target();
        if target.access.streams.is_some() && !matches!(target.endpoints, Endpoints::One(_)) {
            return Err(Error::invalid(
                "Client::streams opens streams to one server, and a cluster or servers that sentinels watch are several; \
                 give the URL of a single server",
            ));
        }
        Ok(())
    }

    /// The same with connections of its own, which live on the runtime on which they are opened.
    pub(crate) fn apart(self) -> Self {
        Self { store: Store::new(&self.store.target().at_home(Home::Opener), self.answer_within), ..self }
    }

    /// For looks that are made over and over.
    pub(crate) fn rounds(&self) -> Rounds {
        Rounds { are_few: self.saves_requests, time: self.virtual_time.clone(), seen: None }
    }

    /// Whether time is tokio's, which tests may pause and advance.
    pub(crate) fn virtual_time(&self) -> bool {
        self.virtual_time.is_some()
    }
}

macro_rules! read_from {
    ($($url:ty),*) => {$(
        impl TryFrom<$url> for Client {
            type Error = Error;

            fn try_from(url: $url) -> Result<Self> {
                Self::new(url.as_ref())
            }
        }
    )*};
}

read_from!(&str, String, &String);

impl fmt::Debug for Client {
    /// Without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({}, {})", self.store.target().endpoints, self.namespace)
    }
}
