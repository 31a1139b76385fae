//! One server, as calls are made there, and where it is found.

use std::fmt;
use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use redis::{Cmd, Pipeline, Value, cmd, pipe};

use crate::address::{Address, Endpoint};
use crate::error::{Error, ErrorKind, Result};
use crate::escape::plain;
use crate::node::Node;
use crate::sentinel::Sentinels;
use crate::topology::Layout;
use crate::trust::{Outage, Trust};

/// Where a server is found, asked again for each connection. One that stays where it is needs only the first two.
pub(crate) trait Place: fmt::Debug + Send + Sync {
    /// Where it was found last.
    fn present(&self) -> Address;

    /// Returns whether the server answers, wherever it is.
    fn outage(&self) -> &Arc<Outage>;

    /// Where to connect to now.
    fn find(&self) -> BoxFuture<'_, Result<Address>> {
        ready(Ok(self.present())).boxed()
    }

    /// Returns how often it has been another place than before. A connection from before such a change is of no use.
    fn moves(&self) -> u64 {
        0
    }

    /// Returns whether this is where it is.
    fn is_at(&self, _: &Endpoint) -> bool {
        true
    }

    /// Returns when it is elsewhere.
    fn left<'a>(&'a self, _: &'a Endpoint) -> BoxFuture<'a, ()> {
        pending().boxed()
    }

    /// The sentinels that name it, if any do: then another server may take its place.
    fn sentinels(&self) -> Option<Arc<Sentinels>> {
        None
    }
}

impl Place for Address {
    fn present(&self) -> Address {
        self.clone()
    }

    fn outage(&self) -> &Arc<Outage> {
        &self.outage
    }
}

/// A server with the connections that are kept to it, and how calls are made there.
#[derive(Clone)]
pub struct Server {
    lines: Arc<Lines>,
    waits: bool,
    /// Its slot is on its way there, and only calls that say so are served.
    asking: bool,
}

struct Lines {
    /// For everything but waiting.
    calls: Arc<Node>,
    /// WAIT and WAITAOF hold up all that follows them on a connection.
    waits: Arc<Node>,
    trust: Trust,
}

impl Server {
    /// The server at an address.
    pub fn at(address: Address, answer_within: Duration) -> Self {
        Self::found_by(Arc::new(address), answer_within)
    }

    pub(crate) fn found_by(place: Arc<dyn Place>, answer_within: Duration) -> Self {
        let calls = Node::new(place.clone(), answer_within);
        let lines = Lines { calls, waits: Node::new(place, answer_within), trust: Trust::default() };
        Self { lines: Arc::new(lines), waits: false, asking: false }
    }

    fn place(&self) -> &dyn Place {
        self.lines.calls.place()
    }

    /// Where to connect to now.
    ///
    /// # Errors
    /// When sentinels are to name it and do not.
    pub async fn find(&self) -> Result<Address> {
        self.place().find().await
    }

    /// Where it was found last.
    pub fn present(&self) -> Address {
        self.place().present()
    }

    /// Returns when the server is no longer at this address.
    pub async fn left(&self, address: &Address) {
        self.place().left(&address.endpoint()).await;
    }

    /// Returns whether the server answers, wherever it is.
    pub fn outage(&self) -> &Outage {
        self.place().outage()
    }

    /// The sentinels that name it, if any do.
    pub fn sentinels(&self) -> Option<Arc<Sentinels>> {
        self.place().sentinels()
    }

    /// Returns how many requests (pipelines count once) have been sent.
    pub fn requests(&self) -> u64 {
        self.lines.calls.requests() + self.lines.waits.requests()
    }

    /// The same, on the connection for calls that wait, if so.
    pub(crate) fn waiting(self, waits: bool) -> Self {
        Self { waits, ..self }
    }

    /// Another server, on the same of its connections.
    pub(crate) fn or(&self, other: Self) -> Self {
        other.waiting(self.waits)
    }

    /// The same for a slot that is on its way there.
    pub(crate) fn asking(self) -> Self {
        Self { asking: true, ..self }
    }

    /// The same for what is about no slot.
    #[must_use]
    pub fn plain(&self) -> Self {
        Self { asking: false, ..self.clone() }
    }

    /// Returns by what its answers are believed. Where others wait for replicas all are late by intention, and WAIT
    /// says itself how far a write has come.
    pub(crate) fn trust(&self) -> Option<&Trust> {
        (!self.waits).then_some(&self.lines.trust)
    }

    /// Returns the names of the primaries that it watches, if it is a sentinel and no server.
    pub async fn watched(&self) -> Option<Vec<String>> {
        let role = self.call("asking for the role", &cmd("ROLE")).await.ok()?;
        let (name, watched) = redis::from_redis_value::<(String, Vec<String>)>(role).ok()?;
        (name == "sentinel").then_some(watched)
    }

    /// Returns the error for a program that takes it for a server, if it is a sentinel.
    pub(crate) async fn as_sentinel(&self) -> Option<Error> {
        let watched = self.watched().await?;
        let address = self.present();
        let (at, scheme) = (address.endpoint(), if address.is_over_tls() { "rediss" } else { "redis" });
        let name = plain(watched.first().map_or("NAME", |name| name), 100);
        let message = format!(
            "{at} is a sentinel, and no server: say {scheme}+sentinel://{at}/{name}; it watches {}",
            plain(&watched.join(", "), 200)
        );
        Some(Error::new(ErrorKind::Unsupported, message))
    }

    fn node(&self) -> &Arc<Node> {
        let Lines { calls, waits, .. } = &*self.lines;
        if self.waits { waits } else { calls }
    }

    /// Sends one command.
    ///
    /// # Errors
    /// An error of the server comes with its code.
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
    /// An error among the answers is that of all.
    pub async fn call_all(&self, doing: &str, pipeline: &Pipeline) -> Result<Vec<Value>> {
        if !self.asking {
            return self.node().call_all(doing, pipeline).await;
        }
        self.call_each(doing, pipeline).await.into_iter().collect()
    }

    /// Sends several commands in one request; an error of the server is the answer to its own command alone.
    pub async fn call_each(&self, doing: &str, pipeline: &Pipeline) -> Vec<Result<Value>> {
        if !self.asking {
            return self.node().call_each(doing, pipeline).await;
        }
        let commands: Vec<_> = pipeline.cmd_iter().cloned().collect();
        self.call_each_of(doing, &commands).await
    }

    /// ASKING is good for the next command alone, and has an answer of its own.
    async fn call_each_of(&self, doing: &str, commands: &[Cmd]) -> Vec<Result<Value>> {
        let mut pipeline = pipe();
        for command in commands {
            pipeline.add_command(cmd("ASKING")).add_command(command.clone());
        }
        let answers = self.node().call_each(doing, &pipeline).await;
        answers.into_iter().skip(1).step_by(2).collect()
    }

    /// The answer to a call there, if it can be believed.
    async fn believed<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        match self.sentinels() {
            // Nobody takes its place.
            None => call.await,
            Some(sentinels) => sentinels.believed(self.trust(), call).await,
        }
    }
}

/// One server at a time has everything.
impl Layout for Server {
    async fn at<T, F>(&self, _: u16, waits: bool, call: impl Fn(Server) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let server = self.clone().waiting(waits);
        server.believed(call(server.clone())).await
    }

    async fn each(&self, doing: &str, commands: Vec<(u16, Cmd)>) -> Vec<Result<Value>> {
        let mut pipeline = pipe();
        for (_, command) in commands {
            pipeline.add_command(command);
        }
        let sent = async { Ok(self.call_each(doing, &pipeline).await) };
        self.believed(sent).await.unwrap_or_else(|error| vec![Err(error); pipeline.len()])
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

    fn called(&self) -> Vec<Server> {
        vec![self.clone()]
    }

    async fn holders(&self, slots: &[u16]) -> Result<Vec<(Address, Vec<usize>)>> {
        Ok(vec![(self.find().await?, (0..slots.len()).collect())])
    }

    async fn moved(&self, held: &[(Endpoint, u16)]) {
        match held.first() {
            Some((endpoint, _)) => self.place().left(endpoint).await,
            None => pending().await,
        }
    }

    fn report(&self) {
        self.outage().report();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({})", self.present())
    }
}
