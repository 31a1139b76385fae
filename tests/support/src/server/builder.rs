//! The settings of a server, and the command line with these settings.

use std::{
    num::NonZeroUsize,
    process::{Command, Stdio},
};

use super::{Server, home::Home, start, start::Ports};
use crate::{Binary, Direction, Error, Proxy, Reach, provider::Front};

/// The bytes of data in a TCP segment on Ethernet.
const SEGMENT: NonZeroUsize = NonZeroUsize::new(1448).unwrap();

/// The setting `appendfsync`: when the server flushes the append-only file to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    /// Flushes before each reply. Acknowledged writes survive a power cut.
    Always,
    /// Flushes each second. A power cut loses the writes of the last one or two seconds.
    EverySecond,
    /// Leaves the flush to the operating system.
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

/// Settings for a new server: see [`Server::builder`].
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

    /// Sets how clients reach the server, instead of the settings of the environment.
    #[must_use]
    pub fn reach(mut self, reach: Reach) -> Self {
        self.reach = reach;
        self
    }

    /// Runs this binary instead of that of [`Binary::find`].
    #[must_use]
    pub fn binary(mut self, binary: Binary) -> Self {
        self.binary = Some(binary);
        self
    }

    /// Writes an append-only file, so that data survives [`Server::kill`]. By default the server keeps nothing.
    #[must_use]
    pub fn aof(self, fsync: Fsync) -> Self {
        self.config("appendonly", "yes").config("appendfsync", fsync.name())
    }

    /// Overrides a setting of the repository's `redis.conf`. The value is split at spaces, as in the file.
    #[must_use]
    pub fn config(mut self, name: &str, value: &str) -> Self {
        self.config.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets a variable of the server's environment, such as `LD_PRELOAD`.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Panics
    ///
    /// If the server does not start. The message contains its log.
    pub async fn start(self) -> Server {
        self.try_start().await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Like [`start`](Self::start), but returns an error if the server does not start.
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

    /// The last value of a setting applies, so the test's settings follow the defaults. Tests cannot change those of a
    /// service.
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
            // The server reports errors of the configuration before it opens a `logfile`. The log is therefore its output.
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
