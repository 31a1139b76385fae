//! Connections, over sockets or over streams that the application opens, with TLS or without.

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

use crate::address::{Access, Address, Endpoint};
use crate::classify::{carry, classify, is_cut_off};
use crate::error::{Error, ErrorKind, Result};
use crate::tls::Context;

/// Anything that carries a connection: a tunnel, a TLS session.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A stream that is being opened.
type Opening = BoxFuture<'static, io::Result<Box<dyn Stream>>>;

/// Opens streams to a server.
#[derive(Clone)]
pub struct Streams(Arc<dyn Fn() -> Opening + Send + Sync>);

impl Streams {
    /// Which are never opened, for this reason.
    pub(super) fn to_none(reason: &'static str) -> Self {
        Self::new(move || std::future::ready(Err::<tokio::net::TcpStream, _>(io::Error::other(reason))))
    }

    /// Streams that this function opens, one for each connection.
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

/// What files say now: how to log in, and how TLS is spoken.
struct Prepared {
    settings: RedisConnectionInfo,
    tls: Option<Context>,
}

impl Prepared {
    async fn of(access: &Arc<Access>) -> Result<Self> {
        if !access.has_files() {
            return Self::read(access);
        }
        let access = access.clone();
        let reading = tokio::task::spawn_blocking(move || Self::read(&access));
        reading.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, "reading files was cut short")))
    }

    fn read(access: &Access) -> Result<Self> {
        let tls = access.tls.as_ref().map(Context::new).transpose()?;
        Ok(Self { settings: access.settings()?, tls })
    }
}

impl Address {
    /// Connects and logs in.
    pub(crate) async fn connect(&self, config: &AsyncConnectionConfig) -> RedisResult<MultiplexedConnection> {
        match self.introduce(config).await {
            Err(error) if error.is_connection_dropped() && !error.is_connection_refusal() => {
                self.terse().introduce_and_ping(config).await.ok_or(error)
            }
            connected => connected,
        }
    }

    /// The same for what hangs up at words that it need not hear, as twemproxy does at CLIENT. Where nothing else has to be
    /// said, a server that hangs up at once would seem to be there without the PING.
    async fn introduce_and_ping(&self, config: &AsyncConnectionConfig) -> Option<MultiplexedConnection> {
        let mut connection = self.introduce(config).await.ok()?;
        let answer = redis::cmd("PING").exec_async(&mut connection).await;
        let is_there = answer.map_or_else(|error| !classify("", &error).is_of_the_line(), |()| true);
        is_there.then_some(connection)
    }

    async fn introduce(&self, config: &AsyncConnectionConfig) -> RedisResult<MultiplexedConnection> {
        let Prepared { settings, tls } = Prepared::of(&self.access).await.map_err(carry)?;
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

    /// A connection for a subscription in RESP2.
    pub(crate) async fn connect_pubsub(&self) -> RedisResult<PubSub> {
        let Prepared { settings, tls } = Prepared::of(&self.access).await.map_err(carry)?;
        match self.open(tls.as_ref()).await? {
            Some(stream) => {
                PubSub::new(&settings, stream).await.map_err(|error| explained(error, tls.as_ref()))
            }
            None => self.client(&settings)?.get_async_pubsub().await,
        }
    }

    /// A stream that we open; none where `redis` does.
    async fn open(&self, tls: Option<&Context>) -> RedisResult<Option<Box<dyn Stream>>> {
        let stream = match (&self.access.streams, tls, &self.endpoint) {
            (Some(streams), ..) => streams.0().await?,
            (None, Some(_), Endpoint::Tcp { host, port }) => Box::new(open(host, *port).await?),
            _ => return Ok(None),
        };
        let Some(tls) = tls else { return Ok(Some(stream)) };
        let session = tls.begin(stream, &self.endpoint);
        if self.access.streams.is_some() {
            return session.await.map(Some).map_err(carry);
        }
        tokio::select! {
            session = session => session.map(Some).map_err(carry),
            () = turns_out_plain(&self.endpoint) => Err(carry(Error::new(
                ErrorKind::Tls,
                format!(
                    "{NO_TLS}, but plain Redis: give the server's TLS port (`tls-port`), or say redis:// if the way \
                     to it is safe",
                ),
            ))),
        }
    }

    fn client(&self, settings: &RedisConnectionInfo) -> RedisResult<Client> {
        let info = self.endpoint.addr().into_connection_info()?;
        Client::open(info.set_redis_settings(settings.clone()).set_tcp_settings(tcp_settings()))
    }

    /// Why a plain connection was cut: perhaps TLS is spoken there.
    async fn explain(&self, error: RedisError) -> RedisError {
        let cut = error.is_connection_dropped() && !error.is_connection_refusal();
        let odd = error.kind() == RedisErrorKind::Parse && !is_cut_off(&error);
        if error.code().is_some() || !(cut || odd) || !speaks_tls(&self.endpoint).await {
            return error;
        }
        carry(Error::new(
            ErrorKind::Tls,
            format!("{TLS}: say rediss:// in place of redis:// (in Rust: Servers::tls)"),
        ))
    }
}

/// Why a connection over a stream could not be made: with TLS 1.3 a server judges a client's certificate only when the
/// session stands.
fn explained(error: RedisError, tls: Option<&Context>) -> RedisError {
    tls.and_then(|tls| tls.explain(&error)).map_or(error, carry)
}

/// Which runtime opens connections and reads them.
///
/// A connection is read by a task. Were that one of a program's runtimes, all other callers would wait while that runtime
/// is blocked, or driven by nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Home {
    /// The one on which a connection is first needed: a listener has a thread of its own, and tests have a clock.
    #[default]
    Opener,
    /// One thread for all connections of this process that no listener has.
    OwnThread,
}

/// None where the system has no thread for it.
static OWN: LazyLock<Option<Runtime>> = LazyLock::new(|| {
    Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("keylapse-connections")
        .enable_all()
        .build()
        .ok()
});

impl Home {
    /// Does this work there, to its end, also when nobody waits for it.
    pub async fn run<T: Send + 'static>(self, work: impl Future<Output = T> + Send + 'static) -> T {
        let Some(own) = self.own() else { return work.await };
        match own.spawn(work).await {
            Ok(done) => done,
            // The runtime is never shut down, and no handle to its tasks is kept, so that it has panicked.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    /// Starts a task there.
    pub fn spawn(self, task: impl Future<Output = ()> + Send + 'static) {
        match self.own() {
            Some(own) => own.spawn(task),
            None => tokio::spawn(task),
        };
    }

    fn own(self) -> Option<&'static Runtime> {
        (self == Self::OwnThread).then_some(OWN.as_ref()).flatten()
    }
}

// TCP connections: how they are kept, the same for plain ones, which `redis` opens, and for those below TLS; and who
// answers at a port where none could be made, so that an error can say what to set.

/// After this long without an acknowledgement the kernel gives a connection up.
const DEAD_AFTER: Duration = Duration::from_secs(10);

/// How an error begins where TLS was tried at a plain port.
pub const NO_TLS: &str = "no TLS is spoken at this port";
/// How an error begins where plain Redis was tried at a port of TLS.
pub const TLS: &str = "TLS is spoken at this port";

/// How long an answer may take.
const WITHIN: Duration = Duration::from_millis(400);
/// After this long without an answer to TLS somebody who speaks none is suspected. With the answer it is less than anybody waits
/// for a connection: a second, for a sentinel.
#[cfg_attr(not(feature = "tls"), allow(dead_code))]
const SUSPECT_AFTER: Duration = Duration::from_millis(300);

/// The shortest greeting of TLS 1.2. It need not lead to a session: an alert is an answer, too.
#[rustfmt::skip]
const HELLO: [u8; 56] = [
    0x16, 3, 1, 0, 51, // a record of the handshake
    1, 0, 0, 47, 3, 3, // a client's hello
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0,                                     // no session to resume
    0, 8, 0xc0, 0x2f, 0xc0, 0x2b, 0xc0, 0x30, 0xc0, 0x2c, // cipher suites
    1, 0, // no compression
];

/// `redis` 1.x leaves all of these off.
fn tcp_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new().with_time(DEAD_AFTER).with_interval(Duration::from_secs(3));
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(DEAD_AFTER);
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

/// Returns whether TLS is spoken there. Nothing is told but what any stranger would say.
async fn speaks_tls(endpoint: &Endpoint) -> bool {
    matches!(first_bytes(endpoint, &HELLO).await, Some([0x15 | 0x16, 3]))
}

/// Comes when Redis' protocol turns out to be spoken there, without TLS; else never. For whoever waits for TLS.
#[cfg_attr(not(feature = "tls"), allow(dead_code))]
async fn turns_out_plain(endpoint: &Endpoint) {
    tokio::time::sleep(SUSPECT_AFTER).await;
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
    tokio::time::timeout(WITHIN, asked).await.ok()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    /// Returns whether `connect` succeeds at a server that closes the connection at each command. It sends this answer to a
    /// PING before.
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
        let address = Address::at(target.endpoints.all()[0].clone(), target.access.clone());
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
        assert_eq!(socket.tcp_keepalive_time().unwrap(), DEAD_AFTER);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), Duration::from_secs(3));
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(DEAD_AFTER));
    }
}
