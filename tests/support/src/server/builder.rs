//! What a server shall be like, and the command line that makes it so.

use std::{
    num::NonZeroUsize,
    process::{Command, Stdio},
};

use super::{Server, home::Home, start, start::Ports};
use crate::{Binary, Direction, Error, Proxy, Reach, provider::Front};

/// What a segment of TCP holds in an Ethernet.
const SEGMENT: NonZeroUsize = NonZeroUsize::new(1448).unwrap();

/// When an append-only file is forced to the disk: `appendfsync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    /// Before each reply: what was acknowledged survives a power cut.
    Always,
    /// Each second: a power cut loses about the last second or two.
    EverySecond,
    /// Whenever the operating system does.
    Never,
}

impl Fsync {
    fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::EverySecond => "everysec",
            Self::Never => "no",
        }
    }
}

/// Settings for a server that is about to be started; see [`Server::builder`].
#[derive(Clone, Debug)]
pub struct Builder {
    binary: Option<Binary>,
    config: Vec<(String, String)>,
    environment: Vec<(String, String)>,
    pub(super) reach: Reach,
}

impl Builder {
    pub(super) fn new() -> Self {
        let reach = Reach::of_this_run().clone();
        Self { binary: None, config: Vec::new(), environment: Vec::new(), reach }
    }

    /// Has clients reach it so, whatever the environment says.
    #[must_use]
    pub fn reach(mut self, reach: Reach) -> Self {
        self.reach = reach;
        self
    }

    /// Runs this binary instead of the one that [`Binary::find`] names.
    #[must_use]
    pub fn binary(mut self, binary: Binary) -> Self {
        self.binary = Some(binary);
        self
    }

    /// Keeps an append-only file, so that data survives [`Server::kill`]. The default is to keep
    /// nothing.
    #[must_use]
    pub fn aof(self, fsync: Fsync) -> Self {
        self.config("appendonly", "yes").config("appendfsync", fsync.name())
    }

    /// Overrides one setting of the repository's `redis.conf`. A value is split at spaces, as there.
    #[must_use]
    pub fn config(mut self, name: &str, value: &str) -> Self {
        self.config.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets a variable of the server's environment: for libraries that are loaded before it.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Panics
    ///
    /// If it cannot be started; the message holds the server's own explanation.
    pub async fn start(self) -> Server {
        self.try_start().await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Like [`start`](Self::start), for tests that expect the server to refuse.
    pub async fn try_start(self) -> Result<Server, Error> {
        let binary = match &self.binary {
            Some(binary) => binary.clone(),
            None => Binary::find()?,
        };
        let mut server = start::on_any_port(binary, self).await?;
        if let Some(provider) = server.reach().provider() {
            server.front = Some(Front::before(&server, provider).await);
        }
        if server.reach().is_in_segments() {
            let line = Proxy::before(&server).await;
            line.split(Direction::Replies, Some(SEGMENT));
            server.line = Some(line);
        }
        Ok(server)
    }

    /// The later of two equal settings wins, so the test's own come late; those of a service are not to be changed.
    pub(super) fn command(&self, binary: &Binary, ports: Ports, home: &Home) -> Result<Command, Error> {
        let mut command = Command::new(binary.path());
        command
            .arg(home.config())
            .args(["--port", &ports.own.to_string(), "--bind", "127.0.0.1"])
            .arg("--dir")
            .arg(home.path())
            .args(["--save", "", "--appendonly", "no", "--enable-debug-command", "local"])
            .current_dir(home.path())
            .stdin(Stdio::null())
            // Complaints about the configuration come before a `logfile` is opened, so the log is
            // simply what the server prints.
            .stdout(home.open_log()?)
            .stderr(home.open_log()?)
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        let (of_reach, of_provider) = (self.reach.settings(ports.door), self.reach.of_provider());
        for (name, value) in of_reach.iter().chain(&self.config).chain(&of_provider) {
            command.arg(format!("--{name}")).args(value.split(' '));
        }
        Ok(command)
    }
}
