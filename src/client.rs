//! The connection settings that producers and listeners share.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::connection::{ConnectionRuntime, Endpoints, Streams, Target};
use crate::error::{Error, Result};
use crate::rounds::{PollTimer, VirtualTime};
use crate::wire::{DEFAULT_ANSWER_WITHIN, DEFAULT_NAMESPACE, Store, check_name};

/// The longest `retry_for`. A repeated call must find the tombstone of the first one, which Redis keeps for ten
/// minutes.
const MAX_RETRY_FOR: Duration = Duration::from_secs(120);

/// A Redis or Valkey deployment and the settings of its connections.
///
/// [`Schedule`](crate::Schedule)s and [`Listener`](crate::Listener)s share a client. A client is cheap to clone. Its
/// clones share connections, except that each listener has its own. A client connects when it makes its first call.
///
/// A function that takes a client also takes a URL, and then uses the default settings.
///
/// ```no_run
/// use std::time::Duration;
/// use keylapse::{Client, Listener, Schedule};
///
/// # async fn connect() -> keylapse::Result<()> {
/// let client = Client::new("redis://127.0.0.1/")?
///     .namespace("billing")?
///     .retry_for(Duration::from_secs(10));
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
    pub(crate) retry_for: Duration,
    /// True if listeners send fewer requests; see
    /// [`ListenerBuilder::save_requests`](crate::ListenerBuilder::save_requests).
    pub(crate) saves_requests: bool,
    /// `None` uses the system's clock.
    pub(crate) virtual_time: Option<Arc<dyn VirtualTime>>,
}

impl Client {
    /// Returns a client of the deployment that a URL names.
    ///
    /// | deployment | URL |
    /// | --- | --- |
    /// | one server | `redis://[user:password@]host[:port][/db]` |
    /// | Unix socket | `unix:///path` |
    /// | Redis Cluster | `redis+cluster://[user:password@]h1:7000,h2:7001/` |
    /// | Sentinel | `redis+sentinel://[user:password@]h1:26379,h2:26379/mymaster[/db]` |
    ///
    /// The schemes `rediss` and `rediss+…` connect with TLS, which needs the feature `tls`. `valkey` may replace
    /// `redis` in each scheme. A cluster or Sentinel URL needs only some of the nodes, and any of them may be down.
    /// [`Servers`](crate::Servers) builds the same settings in Rust, and has settings that URLs lack.
    ///
    /// If the URL has no password, the client takes it from the environment variable `KEYLAPSE_REDIS_PASSWORD`, or
    /// from the file that `KEYLAPSE_REDIS_PASSWORD_FILE` names. It reads this file again for each connection. Only
    /// one of the two variables may be set.
    ///
    /// Sentinels have their own login: `?sentinel_user=…&sentinel_password=…`, or the variables
    /// `KEYLAPSE_SENTINEL_PASSWORD` and `KEYLAPSE_SENTINEL_PASSWORD_FILE`.
    ///
    /// # Errors
    /// Returns an error of kind [`Invalid`](crate::ErrorKind::Invalid) if the URL is malformed or its settings
    /// contradict each other. The message names the part.
    pub fn new(url: &str) -> Result<Self> {
        Ok(Self::over_target(&Target::parse(url)?))
    }

    pub(crate) fn over_target(target: &Target) -> Self {
        Self::over(Store::new(target, DEFAULT_ANSWER_WITHIN))
    }

    pub(crate) fn over(store: Store) -> Self {
        Self {
            store,
            answer_within: DEFAULT_ANSWER_WITHIN,
            namespace: DEFAULT_NAMESPACE.into(),
            retry_for: Duration::from_secs(5),
            saves_requests: false,
            virtual_time: None,
        }
    }

    /// Connects over streams that `open` returns, instead of the URL's host: for a tunnel, or for your own TLS stack.
    ///
    /// User, password and database still come from the URL. With `rediss://`, TLS runs over these streams. `open` is
    /// called for each new connection, also after one is lost. A producer has up to two connections, a listener up to
    /// three. An error of `open` counts as an unreachable server.
    ///
    /// `open` runs on tokio runtimes that keylapse owns: one for each listener, and one for all schedules of the
    /// process.
    pub fn connect_with<F, S>(self, open: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let target = self.store.target().with_streams(Streams::new(open));
        Self { store: Store::new(&target, self.answer_within), ..self }
    }

    /// Sets the prefix of all names that keylapse uses in Redis. Default: `keylapse`.
    ///
    /// # Errors
    /// Returns an error if the prefix has characters that names may not have.
    pub fn namespace(self, prefix: &str) -> Result<Self> {
        check_name("the namespace", prefix)?;
        Ok(Self { namespace: prefix.into(), ..self })
    }

    /// Sets how long to wait for the answer to one call. Default: 5 s.
    ///
    /// # Errors
    /// Returns an error if the limit is zero.
    pub fn answer_within(self, limit: Duration) -> Result<Self> {
        if limit.is_zero() {
            return Err(Error::invalid("answer_within must be more than zero"));
        }
        Ok(Self { store: Store::new(self.store.target(), limit), answer_within: limit, ..self })
    }

    /// Sets how long a producer repeats a call that got no answer. Default: 5 s. The maximum is 2 min, and longer
    /// times are cut to it.
    pub fn retry_for(self, retry_for: Duration) -> Self {
        Self { retry_for: retry_for.min(MAX_RETRY_FOR), ..self }
    }

    /// Rejects custom streams for a cluster or Sentinel: all streams lead to one server.
    pub(crate) fn check(&self) -> Result<()> {
        let target = self.store.target();
        if target.options.streams.is_some() && !matches!(target.endpoints, Endpoints::One(_)) {
            return Err(Error::invalid(
                "Client::connect_with opens streams to one server, but the URL names a cluster or Sentinel; \
                 give the URL of a single server",
            ));
        }
        Ok(())
    }

    /// Returns this client with its own connections, which live on the runtime that opens them.
    pub(crate) fn apart(self) -> Self {
        Self {
            store: Store::new(
                &self.store.target().with_runtime(ConnectionRuntime::FirstCaller),
                self.answer_within,
            ),
            ..self
        }
    }

    /// Returns the timer of a loop that polls.
    pub(crate) fn rounds(&self) -> PollTimer {
        PollTimer { are_few: self.saves_requests, time: self.virtual_time.clone(), seen: None }
    }

    /// Returns whether tests control the clock.
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
    /// Omits user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({}, {})", self.store.target().endpoints, self.namespace)
    }
}
