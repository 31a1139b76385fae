//! One connection to one server, renewed whenever it is of no more use.

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
use crate::server::Place;

/// The most arguments of a request, the command and its keys among them: ElastiCache Serverless takes no more.
pub const MAX_ARGUMENTS: usize = 3999;
/// How long a connection may take, with handshake and authentication.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);

/// A shared connection, or how there came to be none. Not `redis`' ConnectionManager: that one gives up
/// after six tries, and keeps a connection on which everything times out.
pub(crate) struct Node {
    place: Arc<dyn Place>,
    answer_within: Duration,
    requests: AtomicU64,
    current: Mutex<Option<Live>>,
    connecting: tokio::sync::Mutex<()>,
    /// What came of the last try to connect, if nothing, and when.
    refused: Mutex<Option<(Instant, Error)>>,
    /// Connections in a row that were made, and closed at their first call.
    hung_up: AtomicU32,
}

/// A call that was sent.
struct Sent<'a> {
    doing: &'a str,
    /// The first of its commands.
    first: Option<&'a Cmd>,
    /// The connection's.
    number: u64,
}

impl Sent<'_> {
    /// A line that breaks by chance does not do so at each call.
    fn refused(&self, error: &Error) -> Error {
        let name = match self.first.and_then(|command| command.args_iter().next()) {
            Some(redis::Arg::Simple(name)) => String::from_utf8_lossy(name),
            _ => "a command".into(),
        };
        let message = format!(
            "{error}; connections are made, and closed at the first call, {name}: does a proxy refuse it? Connect without \
             that proxy, or have it let {name} through"
        );
        Error::new(error.kind(), message)
    }
}

#[derive(Clone)]
struct Live {
    number: u64,
    connection: MultiplexedConnection,
    /// How often the place had changed when it was opened.
    moves: u64,
}

impl Node {
    pub(crate) fn new(place: Arc<dyn Place>, answer_within: Duration) -> Arc<Self> {
        let (requests, current, connecting, refused, hung_up) = Default::default();
        Arc::new(Self { place, answer_within, requests, current, connecting, refused, hung_up })
    }

    pub(crate) fn place(&self) -> &dyn Place {
        &*self.place
    }

    /// Where it is at present.
    pub(crate) fn address(&self) -> Address {
        self.place.present()
    }

    /// How many requests (pipelines count once) have been sent.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Sends one command. An error of the server is an [`Err`] with its code.
    pub(crate) async fn call(self: &Arc<Self>, doing: &str, command: &Cmd) -> Result<Value> {
        debug_assert!(is_short(command), "{doing}: too many arguments");
        let mut live = self.live().await?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        let answer = live.connection.send_packed_command(command).await;
        let sent = Sent { doing, first: Some(command), number: live.number };
        self.heard(&sent, answer.and_then(Value::extract_error))
    }

    /// Sends several commands in one request. An error among the answers is that of all.
    ///
    /// Nothing is sent for no commands: `redis` would wait for an answer, and take that of the next request.
    pub(crate) async fn call_all(self: &Arc<Self>, doing: &str, pipeline: &Pipeline) -> Result<Vec<Value>> {
        if pipeline.is_empty() {
            return Ok(Vec::new());
        }
        debug_assert!(pipeline.cmd_iter().all(is_short), "{doing}: too many arguments");
        let mut live = self.live().await?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        // A transaction is answered by OK, by QUEUED for each command, and by
        // one array. An answer that is not waited for would be taken for that
        // of the next request.
        let (skip, take) =
            if pipeline.is_transaction() { (pipeline.len() + 1, 1) } else { (0, pipeline.len()) };
        let answers = live.connection.send_packed_commands(pipeline, skip, take).await;
        let answers = answers.and_then(|all| all.into_iter().map(Value::extract_error).collect());
        self.heard(&Sent { doing, first: pipeline.cmd_iter().next(), number: live.number }, answers)
    }

    /// Sends several commands in one request; an error of the server is the answer to its own command alone.
    pub(crate) async fn call_each(self: &Arc<Self>, doing: &str, pipeline: &Pipeline) -> Vec<Result<Value>> {
        if pipeline.is_empty() {
            return Vec::new();
        }
        debug_assert!(pipeline.cmd_iter().all(is_short), "{doing}: too many arguments");
        let all = |error: Error| vec![Err(error); pipeline.len()];
        let mut live = match self.live().await {
            Ok(live) => live,
            Err(error) => return all(error),
        };
        self.requests.fetch_add(1, Ordering::Relaxed);
        let sent = Sent { doing, first: pipeline.cmd_iter().next(), number: live.number };
        match live.connection.send_packed_commands(pipeline, 0, pipeline.len()).await {
            Ok(answers) => {
                let each = answers.into_iter().map(Value::extract_error);
                each.map(|answer| self.heard(&sent, answer)).collect()
            }
            Err(error) => all(self.failed(&sent, &error)),
        }
    }

    async fn live(self: &Arc<Self>) -> Result<Live> {
        match self.current() {
            Some(live) => Ok(live),
            // Where the connection is to live, as its first caller may be polled no more. Boxed, as it is rare and
            // large: every call would carry the room for it, and the names of its types, of which the compiler bears only
            // so many in a future.
            None => self.address().access().home.run(self.clone().open()).boxed().await,
        }
    }

    /// The outcome of a call, which shows if the server answers.
    fn heard<T>(&self, sent: &Sent<'_>, answer: RedisResult<T>) -> Result<T> {
        match answer {
            Err(error) => Err(self.failed(sent, &error)),
            Ok(answer) => {
                self.answered();
                Ok(answer)
            }
        }
    }

    /// After anything but an answer the connection is given up: nothing would
    /// tell a slow one from a dead one, and `redis` never does so by itself.
    fn failed(&self, sent: &Sent<'_>, error: &RedisError) -> Error {
        // Behind the name there may be another primary by now.
        let given_up = matches!(error.code(), None | Some("READONLY" | "MASTERDOWN"))
            && lock(&self.current).take_if(|live| live.number == sent.number).is_some();
        let hung_up = error.is_connection_dropped();
        let error = self.read(classify_in(self.address().db(), sent.doing, error));
        if error.code().is_some() {
            self.answered();
            return error;
        }
        let before = if given_up && hung_up { self.hung_up.fetch_add(1, Ordering::Relaxed) } else { 0 };
        if before > 0 {
            let error = sent.refused(&error);
            lost(&self.address(), &error);
            return error.unanswered();
        }
        // A connection that broke says nothing: the next may stand.
        if error.kind() == ErrorKind::Timeout {
            lost(&self.address(), &error);
        }
        error.unanswered()
    }

    /// What an error says there: where another server may take this one's place, that of a replica passes.
    fn read(&self, error: Error) -> Error {
        if self.place.sentinels().is_some() { error.until_the_primary_is_known() } else { error }
    }

    fn answered(&self) {
        if self.hung_up.load(Ordering::Relaxed) > 0 {
            self.hung_up.store(0, Ordering::Relaxed);
        }
        if !self.place.outage().answers() {
            self.place.outage().answered(&self.address());
        }
    }

    /// The connection that is there, or a new one.
    async fn open(self: Arc<Self>) -> Result<Live> {
        let came = Instant::now();
        // Where connections live on their openers' runtimes, who connects may be a future that nobody polls any more: it is
        // not waited for any longer than it may take.
        let _one_at_a_time = tokio::time::timeout(CONNECT_WITHIN, self.connecting.lock()).await;
        if let Some(live) = self.current() {
            return Ok(live);
        }
        // All who have waited for it: or each of them would try in turn, or all at once where that takes long.
        if let Some((_, error)) = lock(&self.refused).as_ref().filter(|(at, _)| *at >= came) {
            return Err(error.clone());
        }
        let connected = self.connect().await;
        let refused = connected.as_ref().err().map(|error| (Instant::now(), error.clone()));
        *lock(&self.refused) = refused;
        let (connection, moves) = connected?;
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let live = Live { number: NUMBER.fetch_add(1, Ordering::Relaxed), connection, moves };
        *lock(&self.current) = Some(live.clone());
        Ok(live)
    }

    /// The connection that is there, unless it leads to where the server was before.
    fn current(&self) -> Option<Live> {
        let mut current = lock(&self.current);
        current.take_if(|live| live.moves != self.place.moves());
        current.clone()
    }

    /// A new connection to where the server is now, and how often that had changed before.
    async fn connect(&self) -> Result<(MultiplexedConnection, u64)> {
        let address = self.place.find().await?;
        let moves = self.place.moves();
        let connection = self.connect_to(&address).await.inspect_err(|error| lost(&address, error))?;
        match self.place.is_at(&address.endpoint) {
            true => Ok((connection, moves)),
            false => {
                Err(Error::new(ErrorKind::Unreachable, format!("{address} is not the primary any more")))
            }
        }
    }

    async fn connect_to(&self, address: &Address) -> Result<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_WITHIN))
            .set_response_timeout(Some(self.answer_within));
        let connecting = address.connect(&config);
        let doing = || format!("connecting to {address}");
        match tokio::time::timeout(CONNECT_WITHIN, connecting).await {
            Ok(Ok(connected)) => Ok(connected),
            Ok(Err(error)) if error.kind() == redis::ErrorKind::AuthenticationFailed => {
                let other = tokio::time::timeout(CONNECT_WITHIN, other_reason(address)).await;
                Err(classify(&doing(), &other.ok().flatten().unwrap_or(error)))
            }
            Ok(Err(error)) if is_of_database(&error) => Err(classify_in(address.db(), &doing(), &error)),
            Ok(Err(error)) => Err(classify_refusal(&doing(), &error)),
            Err(_) => Err(Error::new(ErrorKind::Timeout, format!("{}: no answer within 3 s", doing()))),
        }
    }
}

/// Returns whether every service takes so many arguments. Calls with lists use `wire::portions` for that.
fn is_short(command: &Cmd) -> bool {
    command.args_iter().count() <= MAX_ARGUMENTS
}

/// The server does not answer, or there is no way to it.
fn lost(address: &Address, error: &Error) {
    if error.is_of_the_line() {
        address.outage.failed(address, error);
    } else {
        address.outage.answered(address);
    }
}

/// `redis` takes every error in answer to AUTH for a wrong password. There
/// are others that pass, such as too many clients; whoever does not log in
/// is told of them, too.
async fn other_reason(address: &Address) -> Option<RedisError> {
    let config = AsyncConnectionConfig::new();
    let error = match address.anonymous().connect(&config).await {
        Ok(mut connection) => redis::cmd("PING").exec_async(&mut connection).await.err()?,
        Err(error) => error,
    };
    (!matches!(error.code(), Some("NOAUTH" | "NOPERM"))).then_some(error)
}
