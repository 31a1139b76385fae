//! Opens connections over sockets or over streams of the application, with or without TLS.

use std::future::pending;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use std::{fmt, io};

use futures::future::{BoxFuture, select_ok};
use redis::aio::{MultiplexedConnection, PubSub};
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{
    AsyncConnectionConfig, Client, ErrorKind as RedisErrorKind, IntoConnectionInfo, RedisConnectionInfo,
    RedisError, RedisResult,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};
use tokio::runtime::{Builder, Runtime};

use crate::address::{Address, ConnectOptions, Endpoint};
use crate::classify::{classify, into_redis_error, is_cut_off};
use crate::error::{Error, ErrorKind, Result};
use crate::tls::TlsContext;

/// A stream that carries a connection, such as a tunnel or a TLS session.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A stream that is being opened.
type Opening = BoxFuture<'static, io::Result<Box<dyn Stream>>>;

/// Opens streams to a server.
#[derive(Clone)]
pub struct Streams(Arc<dyn Fn() -> Opening + Send + Sync>);

impl Streams {
    /// Returns streams that fail to open, with this reason.
    pub(super) fn to_none(reason: &'static str) -> Self {
        Self::new(move || std::future::ready(Err::<tokio::net::TcpStream, _>(io::Error::other(reason))))
    }

    /// Returns streams that this function opens, one for each connection.
    pub fn new<F, S>(open: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        Self(Arc::new(move || {
            let opening = open();
            Box::pin(async move { Ok(Box::new(opening.await?) as Box<dyn Stream>) })
        }))
    }
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Streams(…)")
    }
}

impl PartialEq for Streams {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Streams {}

/// The login and the TLS settings, with the current contents of their files.
struct LoadedCredentials {
    settings: RedisConnectionInfo,
    tls: Option<TlsContext>,
}

impl LoadedCredentials {
    async fn of(access: &Arc<ConnectOptions>) -> Result<Self> {
        if !access.has_files() {
            return Self::read(access);
        }
        let access = access.clone();
        let reading = tokio::task::spawn_blocking(move || Self::read(&access));
        reading.await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Internal, "reading the files of the login or of TLS was interrupted"))
        })
    }

    fn read(access: &ConnectOptions) -> Result<Self> {
        let tls = access.tls.as_ref().map(TlsContext::new).transpose()?;
        Ok(Self { settings: access.settings()?, tls })
    }
}

impl Address {
    /// Connects and logs in. If the server closes the connection, tries again without sending the library's name.
    pub(crate) async fn connect(&self, config: &AsyncConnectionConfig) -> RedisResult<MultiplexedConnection> {
        match self.connect_and_log_in(config).await {
            Err(error) if error.is_connection_dropped() && !error.is_connection_refusal() => {
                self.without_library_name().connect_and_ping(config).await.ok_or(error)
            }
            connected => connected,
        }
    }

    /// Connects, logs in and sends PING. Some proxies close the connection at optional commands, as twemproxy does at
    /// CLIENT. The PING detects a server that closes every connection, since the handshake may have no other command.
    async fn connect_and_ping(&self, config: &AsyncConnectionConfig) -> Option<MultiplexedConnection> {
        let mut connection = self.connect_and_log_in(config).await.ok()?;
        let answer = redis::cmd("PING").exec_async(&mut connection).await;
        let is_there = answer.map_or_else(|error| !classify("", &error).is_connection_error(), |()| true);
        is_there.then_some(connection)
    }

    async fn connect_and_log_in(&self, config: &AsyncConnectionConfig) -> RedisResult<MultiplexedConnection> {
        let LoadedCredentials { settings, tls } =
            LoadedCredentials::of(&self.access).await.map_err(into_redis_error)?;
        let Some(stream) = self.open(tls.as_ref()).await? else {
            let connecting =
                async { self.client(&settings)?.get_multiplexed_async_connection_with_config(config).await };
            return match connecting.await {
                Err(error) => Err(self.explain(error).await),
                connected => connected,
            };
        };
        let made = MultiplexedConnection::new_with_config(&settings, stream, config.clone()).await;
        let (connection, driver) = made.map_err(|error| explained(error, tls.as_ref()))?;
        tokio::spawn(driver);
        Ok(connection)
    }

    /// Opens a connection for a subscription in RESP2.
    pub(crate) async fn connect_pubsub(&self) -> RedisResult<PubSub> {
        let LoadedCredentials { settings, tls } =
            LoadedCredentials::of(&self.access).await.map_err(into_redis_error)?;
        match self.open(tls.as_ref()).await? {
            Some(stream) => {
                PubSub::new(&settings, stream).await.map_err(|error| explained(error, tls.as_ref()))
            }
            None => self.client(&settings)?.get_async_pubsub().await,
        }
    }

    /// Opens the stream of a connection. Returns `None` if `redis` opens the socket itself.
    async fn open(&self, tls: Option<&TlsContext>) -> RedisResult<Option<Box<dyn Stream>>> {
        let stream = match (&self.access.streams, tls, &self.endpoint) {
            (Some(streams), ..) => streams.0().await?,
            (None, Some(_), Endpoint::Tcp { host, port }) => Box::new(open(host, *port).await?),
            _ => return Ok(None),
        };
        let Some(tls) = tls else { return Ok(Some(stream)) };
        let session = tls.begin(stream, &self.endpoint);
        if self.access.streams.is_some() {
            return session.await.map(Some).map_err(into_redis_error);
        }
        tokio::select! {
            session = session => session.map(Some).map_err(into_redis_error),
            () = detect_plain_redis(&self.endpoint) => Err(into_redis_error(Error::new(
                ErrorKind::Tls,
                format!(
                    "{NO_TLS_AT_PORT}, but plain Redis: use the server's TLS port (`tls-port`), or redis:// if the network is \
                     trusted",
                ),
            ))),
        }
    }

    fn client(&self, settings: &RedisConnectionInfo) -> RedisResult<Client> {
        let info = self.endpoint.addr().into_connection_info()?;
        Client::open(info.set_redis_settings(settings.clone()).set_tcp_settings(tcp_settings()))
    }

    /// Replaces the error of a plain connection if the server speaks TLS at this port.
    async fn explain(&self, error: RedisError) -> RedisError {
        let cut = error.is_connection_dropped() && !error.is_connection_refusal();
        let odd = error.kind() == RedisErrorKind::Parse && !is_cut_off(&error);
        if error.code().is_some() || !(cut || odd) || !speaks_tls(&self.endpoint).await {
            return error;
        }
        into_redis_error(Error::new(
            ErrorKind::Tls,
            format!("{TLS_AT_PORT}: use rediss:// instead of redis:// (in Rust: Servers::tls)"),
        ))
    }
}

/// Adds TLS advice to the error of a connection over a stream. With TLS 1.3, the server checks the client certificate only
/// after the client's handshake is complete.
fn explained(error: RedisError, tls: Option<&TlsContext>) -> RedisError {
    tls.and_then(|tls| tls.explain(&error)).map_or(error, into_redis_error)
}

/// The runtime that opens and reads connections.
///
/// A task reads each shared connection. On a runtime of the program, that task would stop while the runtime is blocked or
/// not driven. Callers on other runtimes would wait for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConnectionRuntime {
    /// The runtime of the first caller that needs the connection. Listeners have their own thread, and tests their own
    /// clock.
    #[default]
    FirstCaller,
    /// One thread for all connections of the process outside listeners.
    OwnThread,
}

/// The runtime of [`ConnectionRuntime::OwnThread`]; `None` if its thread could not be created.
static CONNECTION_THREAD: LazyLock<Option<Runtime>> = LazyLock::new(|| {
    Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("keylapse-connections")
        .enable_all()
        .build()
        .ok()
});

impl ConnectionRuntime {
    /// Runs work on this runtime. On the own thread, the work continues if the caller is dropped.
    pub async fn run<T: Send + 'static>(self, work: impl Future<Output = T> + Send + 'static) -> T {
        let Some(own) = self.own() else { return work.await };
        match own.spawn(work).await {
            Ok(done) => done,
            // The runtime is never shut down and its tasks are never aborted, so the error is a panic.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    /// Spawns a task on this runtime.
    pub fn spawn(self, task: impl Future<Output = ()> + Send + 'static) {
        match self.own() {
            Some(own) => own.spawn(task),
            None => tokio::spawn(task),
        };
    }

    fn own(self) -> Option<&'static Runtime> {
        (self == Self::OwnThread).then_some(CONNECTION_THREAD.as_ref()).flatten()
    }
}

// TCP connections. Plain ones, which `redis` opens, and those under TLS have the same settings. If no connection can be
// made, probes detect TLS or plain Redis at the port, for the advice in the error.

/// The kernel closes a connection after this time without an acknowledgement.
const DEAD_CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// The start of the error for TLS at a plain port.
pub const NO_TLS_AT_PORT: &str = "no TLS is spoken at this port";
/// The start of the error for plain Redis at a TLS port.
pub const TLS_AT_PORT: &str = "TLS is spoken at this port";

/// The time limit of a probe, from connecting to its answer.
const TLS_PROBE_TIMEOUT: Duration = Duration::from_millis(400);
/// The time without an answer to the TLS handshake after which a probe for plain Redis starts. Together with the probe it is
/// shorter than every time limit of a connection; the shortest is one second, for a sentinel.
#[cfg_attr(not(feature = "tls"), allow(dead_code))]
const PLAIN_PROBE_DELAY: Duration = Duration::from_millis(300);

/// The shortest client hello of TLS 1.2. It cannot start a session, but every TLS server answers it, if only with an alert.
#[rustfmt::skip]
const TLS_CLIENT_HELLO: [u8; 56] = [
    0x16, 3, 1, 0, 51, // a record of the handshake
    1, 0, 0, 47, 3, 3, // a client's hello
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0,                                     // no session to resume
    0, 8, 0xc0, 0x2f, 0xc0, 0x2b, 0xc0, 0x30, 0xc0, 0x2c, // cipher suites
    1, 0, // no compression
];

/// Returns the socket options, which `redis` 1.x leaves off by default.
fn tcp_settings() -> TcpSettings {
    let keepalive =
        TcpKeepalive::new().with_time(DEAD_CONNECTION_TIMEOUT).with_interval(Duration::from_secs(3));
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(DEAD_CONNECTION_TIMEOUT);
    settings
}

/// Connects to the first of a host's addresses that answers.
async fn open(host: &str, port: u16) -> io::Result<TcpStream> {
    let connecting: Vec<_> =
        lookup_host((host, port)).await?.map(|address| Box::pin(TcpStream::connect(address))).collect();
    if connecting.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the host's name has no address"));
    }
    let (stream, _) = select_ok(connecting).await?;
    let (socket, settings) = (SockRef::from(&stream), tcp_settings());
    socket.set_tcp_nodelay(settings.nodelay())?;
    if let Some(keepalive) = settings.keepalive() {
        socket.set_tcp_keepalive(keepalive)?;
    }
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(settings.user_timeout())?;
    Ok(stream)
}

/// Returns whether the server speaks TLS. Sends no password or other secret.
async fn speaks_tls(endpoint: &Endpoint) -> bool {
    matches!(first_bytes(endpoint, &TLS_CLIENT_HELLO).await, Some([0x15 | 0x16, 3]))
}

/// Returns once the server has answered a plain PING, and never otherwise. Runs concurrently with a TLS handshake.
#[cfg_attr(not(feature = "tls"), allow(dead_code))]
async fn detect_plain_redis(endpoint: &Endpoint) {
    tokio::time::sleep(PLAIN_PROBE_DELAY).await;
    if !matches!(first_bytes(endpoint, b"PING\r\n").await, Some([b'+' | b'-', _])) {
        pending::<()>().await;
    }
}

async fn first_bytes(endpoint: &Endpoint, greeting: &[u8]) -> Option<[u8; 2]> {
    let Endpoint::Tcp { host, port } = endpoint else { return None };
    let asked = async {
        let mut stream = open(host, *port).await?;
        stream.write_all(greeting).await?;
        let mut answer = [0; 2];
        stream.read_exact(&mut answer).await.map(|_| answer)
    };
    tokio::time::timeout(TLS_PROBE_TIMEOUT, asked).await.ok()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    /// Returns whether `connect` succeeds at a server that closes the connection at each command, after sending this answer
    /// to a PING.
    async fn connects_where_ping_is_answered(by: &'static [u8]) -> bool {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = Target::parse(&format!("redis://{}/", server.local_addr().unwrap())).unwrap();
        let answers = async move {
            while let Ok((mut line, _)) = server.accept().await {
                let mut asked = [0; 1024];
                let read = line.read(&mut asked).await.unwrap_or_default();
                if asked[..read].windows(4).any(|word| word == b"PING") {
                    line.write_all(by).await.unwrap();
                }
            }
        };
        let address = Address::at(target.endpoints.all()[0].clone(), target.options.clone());
        let config = AsyncConnectionConfig::new();
        tokio::select! {
            connected = address.connect(&config) => connected.is_ok(),
            () = answers => false,
        }
    }

    #[tokio::test]
    async fn what_hangs_up_at_all_that_need_not_be_said_is_there_if_it_answers_ping() {
        for answer in [&b"+PONG\r\n"[..], b"-NOPERM not for you\r\n"] {
            assert!(connects_where_ping_is_answered(answer).await, "{answer:?}");
        }
        assert!(!connects_where_ping_is_answered(b"").await, "it hangs up at PING, too");
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_connection_below_tls_is_kept_as_a_plain_one_is() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = open("localhost", server.local_addr().unwrap().port()).await.unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), DEAD_CONNECTION_TIMEOUT);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), Duration::from_secs(3));
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(DEAD_CONNECTION_TIMEOUT));
    }
}
