//! One connection to one server, which is replaced when it breaks or the server moves.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisError, RedisResult, Value};

use tokio::time::Instant;

use crate::address::Address;
use crate::classify::{classify, classify_in, classify_refusal, is_of_database};
use crate::error::{Error, ErrorKind, Result};
use crate::panics::lock;
use crate::server::ServerLocator;

/// The most arguments of a command, including its name and keys. ElastiCache Serverless refuses more.
pub const MAX_ARGUMENTS: usize = 3999;
/// The time limit of a connection attempt, with TLS handshake and login.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// A shared connection that reconnects. It replaces the `ConnectionManager` of `redis`, which stops after six tries, and
/// keeps a connection on which every call times out.
pub(crate) struct ServerConnection {
    place: Arc<dyn ServerLocator>,
    answer_within: Duration,
    requests: AtomicU64,
    current: Mutex<Option<OpenConnection>>,
    connecting: tokio::sync::Mutex<()>,
    /// The time and the error of the last attempt to connect, if it failed.
    refused: Mutex<Option<(Instant, Error)>>,
    /// Successive connections that were opened, and closed by the server at their first call.
    hung_up: AtomicU32,
}

/// A call that was sent.
struct SentCall<'a> {
    doing: &'a str,
    /// The first command of the call.
    first: Option<&'a Cmd>,
    /// The number of the connection.
    number: u64,
}

impl SentCall<'_> {
    /// Returns the error of a second connection in a row that was closed at its first call. A proxy that refuses the command
    /// is more likely then than an accident of the network.
    fn refused(&self, error: &Error) -> Error {
        let name = match self.first.and_then(|command| command.args_iter().next()) {
            Some(redis::Arg::Simple(name)) => String::from_utf8_lossy(name),
            _ => "a command".into(),
        };
        let message = format!(
            "{error}; connections open, but close at the first call, {name}: does a proxy refuse it? Connect without \
             the proxy, or let it pass {name}"
        );
        Error::new(error.kind(), message)
    }
}

#[derive(Clone)]
struct OpenConnection {
    number: u64,
    connection: MultiplexedConnection,
    /// The `move_count` of the server when the connection was opened.
    moves: u64,
}

impl ServerConnection {
    pub(crate) fn new(place: Arc<dyn ServerLocator>, answer_within: Duration) -> Arc<Self> {
        let (requests, current, connecting, refused, hung_up) = Default::default();
        Arc::new(Self { place, answer_within, requests, current, connecting, refused, hung_up })
    }

    pub(crate) fn place(&self) -> &dyn ServerLocator {
        &*self.place
    }

    /// Returns the last known address of the server.
    pub(crate) fn address(&self) -> Address {
        self.place.last_address()
    }

    /// Returns the number of requests sent; a pipeline is one request.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Sends one command.
    ///
    /// # Errors
    /// An error of the connection, or of the server, which has a code.
    pub(crate) async fn call(self: &Arc<Self>, doing: &str, command: &Cmd) -> Result<Value> {
        debug_assert!(is_short(command), "{doing}: too many arguments");
        let mut live = self.get_or_connect().await?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        let answer = live.connection.send_packed_command(command).await;
        let sent = SentCall { doing, first: Some(command), number: live.number };
        self.record_answer(&sent, answer.and_then(Value::extract_error))
    }

    /// Sends several commands in one request. Sends nothing for an empty pipeline: `redis` would wait for an answer, and
    /// take the answer of the next request.
    ///
    /// # Errors
    /// An error of the connection, or the first error among the answers.
    pub(crate) async fn call_all(self: &Arc<Self>, doing: &str, pipeline: &Pipeline) -> Result<Vec<Value>> {
        if pipeline.is_empty() {
            return Ok(Vec::new());
        }
        debug_assert!(pipeline.cmd_iter().all(is_short), "{doing}: too many arguments");
        let mut live = self.get_or_connect().await?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        // The answers to a transaction are OK, QUEUED for each command, and one array. An answer that is left unread would
        // be taken for the answer to the next request.
        let (skip, take) =
            if pipeline.is_transaction() { (pipeline.len() + 1, 1) } else { (0, pipeline.len()) };
        let answers = live.connection.send_packed_commands(pipeline, skip, take).await;
        let answers = answers.and_then(|all| all.into_iter().map(Value::extract_error).collect());
        self.record_answer(
            &SentCall { doing, first: pipeline.cmd_iter().next(), number: live.number },
            answers,
        )
    }

    /// Sends several commands in one request. A server error fails only its own command.
    pub(crate) async fn call_each(self: &Arc<Self>, doing: &str, pipeline: &Pipeline) -> Vec<Result<Value>> {
        if pipeline.is_empty() {
            return Vec::new();
        }
        debug_assert!(pipeline.cmd_iter().all(is_short), "{doing}: too many arguments");
        let all = |error: Error| vec![Err(error); pipeline.len()];
        let mut live = match self.get_or_connect().await {
            Ok(live) => live,
            Err(error) => return all(error),
        };
        self.requests.fetch_add(1, Ordering::Relaxed);
        let sent = SentCall { doing, first: pipeline.cmd_iter().next(), number: live.number };
        match live.connection.send_packed_commands(pipeline, 0, pipeline.len()).await {
            Ok(answers) => {
                let each = answers.into_iter().map(Value::extract_error);
                each.map(|answer| self.record_answer(&sent, answer)).collect()
            }
            Err(error) => all(self.failed(&sent, &error)),
        }
    }

    async fn get_or_connect(self: &Arc<Self>) -> Result<OpenConnection> {
        match self.current() {
            Some(live) => Ok(live),
            // Runs on the connection's runtime, as the caller may be dropped before the connection is open. The future is
            // boxed: it is rare but large, and its nested types would exceed the compiler's limit in every call.
            None => self.address().options().runtime.run(self.clone().open()).boxed().await,
        }
    }

    /// Converts the result of a call, and records whether the server answered.
    fn record_answer<T>(&self, sent: &SentCall<'_>, answer: RedisResult<T>) -> Result<T> {
        match answer {
            Err(error) => Err(self.failed(sent, &error)),
            Ok(answer) => {
                self.answered();
                Ok(answer)
            }
        }
    }

    /// Converts the error of a call. Drops the connection if there was no answer: a slow connection cannot be distinguished
    /// from a dead one, and `redis` itself never drops one.
    fn failed(&self, sent: &SentCall<'_>, error: &RedisError) -> Error {
        // A replica's refusal also drops the connection: the host name may resolve to another primary by now.
        let given_up = matches!(error.code(), None | Some("READONLY" | "MASTERDOWN"))
            && lock(&self.current).take_if(|live| live.number == sent.number).is_some();
        let hung_up = error.is_connection_dropped();
        let error = self.with_failover(classify_in(self.address().db(), sent.doing, error));
        if error.code().is_some() {
            self.answered();
            return error;
        }
        let before = if given_up && hung_up { self.hung_up.fetch_add(1, Ordering::Relaxed) } else { 0 };
        if before > 0 {
            let error = sent.refused(&error);
            update_availability(&self.address(), &error);
            return error.unanswered();
        }
        // A broken connection does not mean that the server is lost: the next connection may succeed.
        if error.kind() == ErrorKind::Timeout {
            update_availability(&self.address(), &error);
        }
        error.unanswered()
    }

    /// Makes a replica's refusal transient if sentinels may name another server.
    fn with_failover(&self, error: Error) -> Error {
        if self.place.sentinels().is_some() { error.transient_during_failover() } else { error }
    }

    fn answered(&self) {
        if self.hung_up.load(Ordering::Relaxed) > 0 {
            self.hung_up.store(0, Ordering::Relaxed);
        }
        if !self.place.outage().is_answering() {
            self.place.outage().answered(&self.address());
        }
    }

    /// Returns the open connection, or opens one. Concurrent callers wait for the attempt of the first.
    async fn open(self: Arc<Self>) -> Result<OpenConnection> {
        let came = Instant::now();
        // The holder of the lock may be a future on a caller's runtime that is no longer polled. The time limit of a
        // connection attempt bounds the wait for it.
        let _one_at_a_time = tokio::time::timeout(CONNECT_TIMEOUT, self.connecting.lock()).await;
        if let Some(live) = self.current() {
            return Ok(live);
        }
        // An attempt failed while this task waited. Its error counts for all that waited: otherwise each of them would try
        // in turn.
        if let Some((_, error)) = lock(&self.refused).as_ref().filter(|(at, _)| *at >= came) {
            return Err(error.clone());
        }
        let connected = self.connect().await;
        let refused = connected.as_ref().err().map(|error| (Instant::now(), error.clone()));
        *lock(&self.refused) = refused;
        let (connection, moves) = connected?;
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let live = OpenConnection { number: NUMBER.fetch_add(1, Ordering::Relaxed), connection, moves };
        *lock(&self.current) = Some(live.clone());
        Ok(live)
    }

    /// Returns the open connection. Drops it if the server has moved since it was opened.
    fn current(&self) -> Option<OpenConnection> {
        let mut current = lock(&self.current);
        current.take_if(|live| live.moves != self.place.move_count());
        current.clone()
    }

    /// Opens a connection to the current address of the server. Also returns the server's `move_count` of that time.
    async fn connect(&self) -> Result<(MultiplexedConnection, u64)> {
        let address = self.place.find().await?;
        let moves = self.place.move_count();
        let connection =
            self.connect_to(&address).await.inspect_err(|error| update_availability(&address, error))?;
        match self.place.is_at(&address.endpoint) {
            true => Ok((connection, moves)),
            false => Err(Error::new(ErrorKind::Unreachable, format!("{address} is no longer the primary"))),
        }
    }

    async fn connect_to(&self, address: &Address) -> Result<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(self.answer_within));
        let connecting = address.connect(&config);
        let doing = || format!("connecting to {address}");
        match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(Ok(connected)) => Ok(connected),
            Ok(Err(error)) if error.kind() == redis::ErrorKind::AuthenticationFailed => {
                let other = tokio::time::timeout(CONNECT_TIMEOUT, probe_without_login(address)).await;
                Err(classify(&doing(), &other.ok().flatten().unwrap_or(error)))
            }
            Ok(Err(error)) if is_of_database(&error) => Err(classify_in(address.db(), &doing(), &error)),
            Ok(Err(error)) => Err(classify_refusal(&doing(), &error)),
            Err(_) => Err(Error::new(ErrorKind::Timeout, format!("{}: no answer within 3 s", doing()))),
        }
    }
}

/// Returns whether the command has at most [`MAX_ARGUMENTS`]. Calls with lists are divided by `wire::portions`.
fn is_short(command: &Cmd) -> bool {
    command.args_iter().count() <= MAX_ARGUMENTS
}

/// Records an error of a connection attempt or a timeout. Any other error shows that the server answers.
fn update_availability(address: &Address, error: &Error) {
    if error.is_connection_error() {
        address.outage.failed(address, error);
    } else {
        address.outage.answered(address);
    }
}

/// Connects without a login, and returns the error if it is not about rights. `redis` reports every error in answer to AUTH
/// as a wrong password. Some are temporary, such as too many clients, and occur without a login too.
async fn probe_without_login(address: &Address) -> Option<RedisError> {
    let config = AsyncConnectionConfig::new();
    let error = match address.anonymous().connect(&config).await {
        Ok(mut connection) => redis::cmd("PING").exec_async(&mut connection).await.err()?,
        Err(error) => error,
    };
    (!matches!(error.code(), Some("NOAUTH" | "NOPERM"))).then_some(error)
}
