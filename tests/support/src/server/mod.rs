//! A server for one test.

mod builder;
mod home;
mod process;
mod start;

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use redis::{Value, aio::MultiplexedConnection};
use rustix::process::Signal;

use self::{home::Home, process::Process, start::Ports};
use crate::{Binary, Proxy, Reach, Version, app_user_line, connect, provider::Front};

pub use builder::{Builder, Fsync};

/// The user in `redis.conf` with the least permissions that keylapse needs.
pub const APP_USER: &str = "keylapse";

/// The password of this user in `redis.conf`.
pub const APP_PASSWORD: &str = "change-me";

const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// A Redis or Valkey server with the repository's `redis.conf`, and its own directory and port.
///
/// It ends when this value is dropped. During a panic, the drop prints the last lines of the log and keeps the directory.
#[derive(Debug)]
pub struct Server {
    binary: Binary,
    settings: Builder,
    ports: Ports,
    /// The proxy that splits replies into segments.
    line: Option<Proxy>,
    /// The proxy that imitates a service.
    front: Option<Front>,
    // This field is before `home`, so that the process ends before its directory is removed.
    process: Option<Process>,
    home: Home,
}

impl Server {
    /// Starts a server without persistence.
    ///
    /// # Panics
    ///
    /// If no server binary is found (`make server` fetches one), or the server does not start.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// Returns a builder for a server with other settings.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Returns the URL for the `default` user, who has all permissions and no password.
    pub fn url(&self) -> String {
        self.reach().url(None, self.door())
    }

    /// Returns the URL for this user. The name and the password are not encoded.
    pub fn url_for(&self, user: &str, password: &str) -> String {
        self.reach().url(Some((user, password)), self.door())
    }

    /// Returns the URL for the user of `redis.conf` with the least permissions.
    pub fn app_url(&self) -> String {
        self.url_for(APP_USER, APP_PASSWORD)
    }

    /// Returns the URL for tests themselves and for other servers: without TLS, and without a proxy.
    pub fn plain_url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port())
    }

    /// Returns the port of [`plain_url`](Self::plain_url), which does not change at a restart.
    pub fn port(&self) -> u16 {
        self.ports.own
    }

    /// Returns the address of [`url`](Self::url), which does not change at a restart.
    pub fn door(&self) -> SocketAddr {
        match (&self.line, &self.front) {
            (Some(line), _) => line.address(),
            (None, Some(front)) => front.address(),
            (None, None) => (Ipv4Addr::LOCALHOST, self.ports.door).into(),
        }
    }

    /// Returns the address for a proxy before this server: that of the imitated service, or else the plain port.
    pub(crate) fn behind(&self) -> SocketAddr {
        match &self.front {
            Some(front) => front.address(),
            None => (Ipv4Addr::LOCALHOST, self.ports.own).into(),
        }
    }

    /// Returns how clients reach the server.
    pub fn reach(&self) -> &Reach {
        &self.settings.reach
    }

    /// Returns the process ID.
    ///
    /// # Panics
    ///
    /// If the server is not running.
    pub fn pid(&self) -> u32 {
        self.running().id()
    }

    /// Returns the server's family and version number.
    pub fn version(&self) -> Version {
        self.binary.version()
    }

    /// Kills the server, like a crash (SIGKILL).
    pub async fn kill(&mut self) {
        self.end_by(Signal::KILL).await;
    }

    /// Shuts the server down (SIGTERM). The server first writes its data to the disk if persistence is on.
    pub async fn shutdown(&mut self) {
        // A stopped process does not receive SIGTERM.
        self.cont();
        self.end_by(Signal::TERM).await;
    }

    /// Starts the server again with its directory, port and settings. If the server runs, it is shut down first.
    pub async fn restart(&mut self) {
        if self.process.is_some() {
            self.shutdown().await;
        }
        let process = start::on_same_port(self).await.unwrap_or_else(|error| panic!("{error}"));
        self.process = Some(process);
    }

    /// Suspends the server (SIGSTOP). Connections stay open, and the kernel still accepts new ones.
    pub fn stop(&self) {
        self.running().signal(Signal::STOP);
    }

    /// Resumes the server after [`stop`](Self::stop) (SIGCONT).
    pub fn cont(&self) {
        self.running().signal(Signal::CONT);
    }

    /// Returns a new connection as the `default` user, with long time limits.
    pub async fn conn(&self) -> MultiplexedConnection {
        let url = self.plain_url();
        connect(&url).await.unwrap_or_else(|error| panic!("cannot connect to {url}: {error}"))
    }

    /// Creates a user `poor` with the permissions of the user in `redis.conf` and these further rules. Returns the user's
    /// URL.
    ///
    /// # Panics
    ///
    /// If the server refuses a rule.
    pub async fn poor_user(&self, rules: &[&str]) -> String {
        let line = app_user_line().replace("user keylapse", "ACL SETUSER poor reset");
        // Rules cannot remove permissions in selectors, so all permissions become those of the user itself.
        let line = line.replace(">change-me", ">poor").replace(['(', ')'], "");
        let words: Vec<_> = line.split(' ').chain(rules.iter().copied()).collect();
        self.cmd(&words).await;
        self.url_for("poor", "poor")
    }

    /// Sends a command on a new connection, and returns the reply.
    ///
    /// # Panics
    ///
    /// If the reply is an error. Use [`conn`](Self::conn) if you expect one.
    pub async fn cmd(&self, words: &[impl AsRef<[u8]>]) -> Value {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word.as_ref());
        }
        let answer = command.query_async(&mut self.conn().await).await;
        answer.unwrap_or_else(|error| panic!("the server refused {}: {error}", shown(words)))
    }

    /// Returns how many of these keys exist. Each key has its own request, because a cluster refuses keys of several slots.
    pub async fn count(&self, keys: &[impl AsRef<[u8]>]) -> usize {
        let mut count = 0;
        for key in keys {
            count += usize::from(self.cmd(&[b"EXISTS", key.as_ref()]).await == Value::Int(1));
        }
        count
    }

    fn running(&self) -> &Process {
        self.process.as_ref().expect("the server is not running: restart it after `kill` or `shutdown`")
    }

    async fn end_by(&mut self, signal: Signal) {
        self.running().signal(signal);
        let mut process = self.process.take().expect("the process was running above");
        let ended = process.ends_within(SHUTDOWN_TIMEOUT).await;
        assert!(
            ended,
            "the server did not end within {SHUTDOWN_TIMEOUT:?} of {signal:?}:\n{}",
            self.home.last_log_lines()
        );
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.home.keep();
            let (version, folder) = (self.version(), self.home.path().display());
            eprintln!(
                "{version} on port {} left its data and log in {folder}; its last log lines:",
                self.port()
            );
            eprintln!("{}", self.home.last_log_lines());
        }
    }
}

fn shown(words: &[impl AsRef<[u8]>]) -> String {
    let words: Vec<String> = words.iter().map(|word| word.as_ref().escape_ascii().to_string()).collect();
    words.join(" ")
}
