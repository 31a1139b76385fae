//! One server, as calls are made there.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Pipeline, Value, cmd, pipe};

use crate::Node;
use crate::error::{Error, ErrorKind, Result};
use crate::escape::plain;
use crate::place::Place;
use crate::trust::Trust;

/// A server with the connections that are kept to it.
#[derive(Clone)]
pub struct Server(Arc<Nodes>);

struct Nodes {
    /// For everything but waiting.
    calls: Node,
    /// WAIT and WAITAOF hold up all that follows them on a connection.
    waits: Node,
    trust: Trust,
}

impl Server {
    pub fn new(place: &Place, answer_within: Duration) -> Self {
        let node = || Node::new(place.clone(), answer_within);
        Self(Arc::new(Nodes { calls: node(), waits: node(), trust: Trust::default() }))
    }

    pub fn place(&self) -> &Place {
        self.0.calls.place()
    }

    /// Where calls are made.
    pub fn seat(&self) -> Seat {
        Seat { server: self.clone(), waits: false, asking: false }
    }

    /// How many requests (pipelines count once) have been sent.
    pub fn requests(&self) -> u64 {
        self.0.calls.requests() + self.0.waits.requests()
    }
}

/// Where a call is made: at a server, and how.
#[derive(Clone)]
pub struct Seat {
    server: Server,
    waits: bool,
    /// Its slot is on its way there, and only those who say so are served.
    asking: bool,
}

impl Seat {
    /// The same server's other connection, for calls that wait.
    pub fn waiting(self) -> Self {
        Self { waits: true, ..self }
    }

    /// The same at another server.
    pub fn at(&self, server: Server) -> Self {
        Self { server, asking: false, ..self.clone() }
    }

    /// The same for a slot that is on its way there.
    pub fn asking(self) -> Self {
        Self { asking: true, ..self }
    }

    /// The same for what is about no slot.
    pub fn plain(&self) -> Self {
        Self { asking: false, ..self.clone() }
    }

    pub fn server(&self) -> &Server {
        &self.server
    }

    /// What tells whether its answers can be believed. Where others wait for replicas all are late by intention, and WAIT
    /// says itself how far a write has come.
    pub fn trust(&self) -> Option<&Trust> {
        (!self.waits).then_some(&self.server.0.trust)
    }

    /// Returns the names of the primaries that it watches, if it is a sentinel and no server.
    pub async fn watched(&self) -> Option<Vec<String>> {
        let role = self.call("asking for the role", &cmd("ROLE")).await.ok()?;
        let (name, watched) = redis::from_redis_value::<(String, Vec<String>)>(role).ok()?;
        (name == "sentinel").then_some(watched)
    }

    /// Returns the error for a program that takes it for a server, if it is a sentinel.
    pub async fn as_sentinel(&self) -> Option<Error> {
        let watched = self.watched().await?;
        let address = self.server.place().present();
        let (at, scheme) = (address.endpoint(), if address.is_over_tls() { "rediss" } else { "redis" });
        let name = plain(watched.first().map_or("NAME", |name| name), 100);
        let message = format!(
            "{at} is a sentinel, and no server: say {scheme}+sentinel://{at}/{name}; it watches {}",
            plain(&watched.join(", "), 200)
        );
        Some(Error::new(ErrorKind::Unsupported, message))
    }

    fn node(&self) -> &Node {
        let Nodes { calls, waits, .. } = &*self.server.0;
        if self.waits { waits } else { calls }
    }

    /// Sends one command. An error of the server is an [`Err`] with its code.
    pub async fn call(&self, doing: &str, command: &Cmd) -> Result<Value> {
        if !self.asking {
            return self.node().call(doing, command).await;
        }
        let asked = [command.clone()];
        let mut answers = self.call_each_of(doing, &asked).await;
        answers.pop().expect("each command has an answer")
    }

    /// Sends several commands in one request. An error among the answers is that of all.
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
}
