//! Calls to one server, and the interface that finds its address.

use std::fmt;
use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use redis::{Cmd, Pipeline, Value, cmd, pipe};

use crate::address::{Address, Endpoint};
use crate::error::{Error, ErrorKind, Result};
use crate::escape::escape_line;
use crate::replacement::{Availability, ReplacementGuard};
use crate::sentinel::Sentinels;
use crate::server_connection::ServerConnection;
use crate::topology::Layout;

/// Finds the address of a server for each new connection. The defaults suit a server whose address never changes.
pub(crate) trait ServerLocator: fmt::Debug + Send + Sync {
    /// Returns the last known address, without asking.
    fn last_address(&self) -> Address;

    /// Returns the availability of the server, which is independent of its address.
    fn outage(&self) -> &Arc<Availability>;

    /// Returns the address for a new connection.
    fn find(&self) -> BoxFuture<'_, Result<Address>> {
        ready(Ok(self.last_address())).boxed()
    }

    /// Returns the number of address changes. Each change makes earlier connections useless.
    fn move_count(&self) -> u64 {
        0
    }

    /// Returns whether the server is at this address.
    fn is_at(&self, _: &Endpoint) -> bool {
        true
    }

    /// Waits until the server is no longer at this address.
    fn wait_until_moved<'a>(&'a self, _: &'a Endpoint) -> BoxFuture<'a, ()> {
        pending().boxed()
    }

    /// Returns the sentinels that name the server, if any. Another server may replace it then.
    fn sentinels(&self) -> Option<Arc<Sentinels>> {
        None
    }
}

impl ServerLocator for Address {
    fn last_address(&self) -> Address {
        self.clone()
    }

    fn outage(&self) -> &Arc<Availability> {
        &self.outage
    }
}

/// A server, with two connections: one for calls, and one for calls that wait. Clones share the connections.
#[derive(Clone)]
pub struct Server {
    lines: Arc<ConnectionSet>,
    waits: bool,
    /// True while a slot is being migrated to this server. It accepts calls for the slot only after `ASKING`.
    asking: bool,
}

struct ConnectionSet {
    /// The connection for all calls except WAIT and WAITAOF.
    calls: Arc<ServerConnection>,
    /// The connection for WAIT and WAITAOF, which delay all later calls on a connection.
    waits: Arc<ServerConnection>,
    trust: ReplacementGuard,
}

impl Server {
    /// Creates a server at a fixed address. It connects at the first call; `answer_within` limits the wait for each answer.
    pub fn at(address: Address, answer_within: Duration) -> Self {
        Self::with_locator(Arc::new(address), answer_within)
    }

    pub(crate) fn with_locator(place: Arc<dyn ServerLocator>, answer_within: Duration) -> Self {
        let calls = ServerConnection::new(place.clone(), answer_within);
        let lines = ConnectionSet {
            calls,
            waits: ServerConnection::new(place, answer_within),
            trust: ReplacementGuard::default(),
        };
        Self { lines: Arc::new(lines), waits: false, asking: false }
    }

    fn place(&self) -> &dyn ServerLocator {
        self.lines.calls.place()
    }

    /// Returns the address for a new connection. Asks the sentinels, if there are any.
    ///
    /// # Errors
    /// The sentinels do not name a server.
    pub async fn find(&self) -> Result<Address> {
        self.place().find().await
    }

    /// Returns the last known address, without asking.
    pub fn last_address(&self) -> Address {
        self.place().last_address()
    }

    /// Waits until the server is no longer at this address. Never returns for a server whose address is fixed.
    pub async fn wait_until_address_changes(&self, address: &Address) {
        self.place().wait_until_moved(&address.endpoint()).await;
    }

    /// Returns the availability of the server, which is independent of its address.
    pub fn outage(&self) -> &Availability {
        self.place().outage()
    }

    /// Returns the sentinels that name the server, if any.
    pub fn sentinels(&self) -> Option<Arc<Sentinels>> {
        self.place().sentinels()
    }

    /// Returns the number of requests sent; a pipeline is one request.
    pub fn requests(&self) -> u64 {
        self.lines.calls.requests() + self.lines.waits.requests()
    }

    /// Selects the connection for calls that wait, or the other one.
    pub(crate) fn on_wait_connection(self, waits: bool) -> Self {
        Self { waits, ..self }
    }

    /// Returns `other` with the same selection of its connection.
    pub(crate) fn redirect_to(&self, other: Self) -> Self {
        other.on_wait_connection(self.waits)
    }

    /// Makes each command follow `ASKING`, for a slot that is being migrated to this server.
    pub(crate) fn asking(self) -> Self {
        Self { asking: true, ..self }
    }

    /// Returns the server without `ASKING`, for calls about no slot.
    #[must_use]
    pub fn plain(&self) -> Self {
        Self { asking: false, ..self.clone() }
    }

    /// Returns the guard that checks answers. `None` for WAIT and WAITAOF: their answers are late by design, and report
    /// themselves how many replicas have a write.
    pub(crate) fn replacement_guard(&self) -> Option<&ReplacementGuard> {
        (!self.waits).then_some(&self.lines.trust)
    }

    /// Returns the names of the primaries that it watches, if the server is a sentinel.
    pub async fn watched(&self) -> Option<Vec<String>> {
        let role = self.call("asking for the role", &cmd("ROLE")).await.ok()?;
        let (name, watched) = redis::from_redis_value::<(String, Vec<String>)>(role).ok()?;
        (name == "sentinel").then_some(watched)
    }

    /// Returns an error with the correct URL, if the server is a sentinel.
    pub(crate) async fn sentinel_error(&self) -> Option<Error> {
        let watched = self.watched().await?;
        let address = self.last_address();
        let (at, scheme) = (address.endpoint(), if address.is_over_tls() { "rediss" } else { "redis" });
        let name = escape_line(watched.first().map_or("NAME", |name| name), 100);
        let message = format!(
            "{at} is a sentinel, not a server: use {scheme}+sentinel://{at}/{name}; it watches {}",
            escape_line(&watched.join(", "), 200)
        );
        Some(Error::new(ErrorKind::Unsupported, message))
    }

    fn node(&self) -> &Arc<ServerConnection> {
        let ConnectionSet { calls, waits, .. } = &*self.lines;
        if self.waits { waits } else { calls }
    }

    /// Sends one command.
    ///
    /// # Errors
    /// An error of the connection, or of the server, which has a code.
    pub async fn call(&self, doing: &str, command: &Cmd) -> Result<Value> {
        if !self.asking {
            return self.node().call(doing, command).await;
        }
        let asked = [command.clone()];
        let mut answers = self.call_each_of(doing, &asked).await;
        answers.pop().expect("each command has an answer")
    }

    /// Sends several commands in one request.
    ///
    /// # Errors
    /// An error of the connection, or the first error among the answers.
    pub async fn call_all(&self, doing: &str, pipeline: &Pipeline) -> Result<Vec<Value>> {
        if !self.asking {
            return self.node().call_all(doing, pipeline).await;
        }
        self.call_each(doing, pipeline).await.into_iter().collect()
    }

    /// Sends several commands in one request. A server error fails only its own command.
    pub async fn call_each(&self, doing: &str, pipeline: &Pipeline) -> Vec<Result<Value>> {
        if !self.asking {
            return self.node().call_each(doing, pipeline).await;
        }
        let commands: Vec<_> = pipeline.cmd_iter().cloned().collect();
        self.call_each_of(doing, &commands).await
    }

    /// Sends `ASKING` before each command, as it applies only to the next one. Drops the answers to `ASKING`.
    async fn call_each_of(&self, doing: &str, commands: &[Cmd]) -> Vec<Result<Value>> {
        let mut pipeline = pipe();
        for command in commands {
            pipeline.add_command(cmd("ASKING")).add_command(command.clone());
        }
        let answers = self.node().call_each(doing, &pipeline).await;
        answers.into_iter().skip(1).step_by(2).collect()
    }

    /// Makes a call, and rejects its answer if another server may have replaced this one.
    async fn reject_if_replaced<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        match self.sentinels() {
            // No other server can replace it.
            None => call.await,
            Some(sentinels) => sentinels.reject_if_replaced(self.replacement_guard(), call).await,
        }
    }
}

/// One server at a time holds all slots.
impl Layout for Server {
    async fn at<T, F>(&self, _: u16, waits: bool, call: impl Fn(Server) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let server = self.clone().on_wait_connection(waits);
        server.reject_if_replaced(call(server.clone())).await
    }

    async fn each(&self, doing: &str, commands: Vec<(u16, Cmd)>) -> Vec<Result<Value>> {
        let mut pipeline = pipe();
        for (_, command) in commands {
            pipeline.add_command(command);
        }
        let sent = async { Ok(self.call_each(doing, &pipeline).await) };
        self.reject_if_replaced(sent).await.unwrap_or_else(|error| vec![Err(error); pipeline.len()])
    }

    async fn members(&self) -> Result<Vec<(Server, Option<u16>)>> {
        Ok(vec![(self.clone(), Some(0))])
    }

    async fn primaries(&self) -> Result<Vec<(Server, u16)>> {
        Ok(vec![(self.clone(), 0)])
    }

    fn known_primaries(&self) -> Vec<Server> {
        vec![self.clone()]
    }

    fn connected_servers(&self) -> Vec<Server> {
        vec![self.clone()]
    }

    async fn holders(&self, slots: &[u16]) -> Result<Vec<(Address, Vec<usize>)>> {
        Ok(vec![(self.find().await?, (0..slots.len()).collect())])
    }

    async fn wait_until_moved(&self, held: &[(Endpoint, u16)]) {
        match held.first() {
            Some((endpoint, _)) => self.place().wait_until_moved(endpoint).await,
            None => pending().await,
        }
    }

    fn report(&self) {
        self.outage().enable_log();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({})", self.last_address())
    }
}
