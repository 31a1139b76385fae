//! A server of a test's own.

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

/// The user with the least rights that keylapse needs, as `redis.conf` defines it.
pub const APP_USER: &str = "keylapse";

/// The password that `redis.conf` gives that user, for everybody to change.
pub const APP_PASSWORD: &str = "change-me";

const SHUTDOWN: Duration = Duration::from_secs(30);

/// A Redis or Valkey server with the repository's `redis.conf`, a directory and a port of its own.
///
/// It ends with this value. If that happens in a panic, its last log lines are printed and its
/// directory is left in place.
#[derive(Debug)]
pub struct Server {
    binary: Binary,
    settings: Builder,
    ports: Ports,
    /// What clients come through.
    line: Option<Proxy>,
    /// The service that clients take it for.
    front: Option<Front>,
    // Before `home`, so that the process has ended when its directory is removed.
    process: Option<Process>,
    home: Home,
}

impl Server {
    /// Starts a server that keeps nothing on disk.
    ///
    /// # Panics
    ///
    /// If there is no server to start (`make server` fetches one), or it does not start.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// Settings for a server that differs from that.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Where the `default` user, who may do everything, connects without a password.
    pub fn url(&self) -> String {
        self.reach().url(None, self.door())
    }

    /// Where this user connects. Name and password are put into the URL as they are.
    pub fn url_for(&self, user: &str, password: &str) -> String {
        self.reach().url(Some((user, password)), self.door())
    }

    /// Where the user of `redis.conf` with the least rights connects.
    pub fn app_url(&self) -> String {
        self.url_for(APP_USER, APP_PASSWORD)
    }

    /// Where tests themselves, and other servers, connect: without TLS, and to this server alone.
    pub fn plain_url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port())
    }

    /// The port of [`plain_url`](Self::plain_url), the same after a restart.
    pub fn port(&self) -> u16 {
        self.ports.own
    }

    /// The address of [`url`](Self::url), the same after a restart; that of the plain port, unless clients speak TLS.
    pub fn door(&self) -> SocketAddr {
        match (&self.line, &self.front) {
            (Some(line), _) => line.address(),
            (None, Some(front)) => front.address(),
            (None, None) => (Ipv4Addr::LOCALHOST, self.ports.door).into(),
        }
    }

    /// Where a proxy before it connects to: the service, if it is one, and else the plain port.
    pub(crate) fn behind(&self) -> SocketAddr {
        match &self.front {
            Some(front) => front.address(),
            None => (Ipv4Addr::LOCALHOST, self.ports.own).into(),
        }
    }

    /// How clients reach it.
    pub fn reach(&self) -> &Reach {
        &self.settings.reach
    }

    /// The process id.
    ///
    /// # Panics
    ///
    /// If the server is not running.
    pub fn pid(&self) -> u32 {
        self.running().id()
    }

    /// Family and version number.
    pub fn version(&self) -> Version {
        self.binary.version()
    }

    /// Ends it at once, as a crash does (SIGKILL).
    pub async fn kill(&mut self) {
        self.end_by(Signal::KILL).await;
    }

    /// Ends it in an orderly way (SIGTERM): it writes to disk whatever it is configured to keep.
    pub async fn shutdown(&mut self) {
        // A stopped process would not hear it.
        self.cont();
        self.end_by(Signal::TERM).await;
    }

    /// Starts it again, with the same directory, port and settings; shuts it down first if it runs.
    pub async fn restart(&mut self) {
        if self.process.is_some() {
            self.shutdown().await;
        }
        let process = start::on_same_port(self).await.unwrap_or_else(|error| panic!("{error}"));
        self.process = Some(process);
    }

    /// Makes it hang (SIGSTOP): connections stay open, and the kernel still accepts new ones.
    pub fn stop(&self) {
        self.running().signal(Signal::STOP);
    }

    /// Lets it go on after [`stop`](Self::stop) (SIGCONT).
    pub fn cont(&self) {
        self.running().signal(Signal::CONT);
    }

    /// A new connection as the `default` user, with generous time limits.
    pub async fn conn(&self) -> MultiplexedConnection {
        let url = self.plain_url();
        connect(&url).await.unwrap_or_else(|error| panic!("cannot connect to {url}: {error}"))
    }

    /// Makes a user `poor` like that of `redis.conf`, with these rules in addition; returns where it connects.
    ///
    /// # Panics
    ///
    /// If the server refuses a rule.
    pub async fn poor_user(&self, rules: &[&str]) -> String {
        let line = app_user_line().replace("user keylapse", "ACL SETUSER poor reset");
        // Rights in selectors would survive what takes them away: here all are the user's own.
        let line = line.replace(">change-me", ">poor").replace(['(', ')'], "");
        let words: Vec<_> = line.split(' ').chain(rules.iter().copied()).collect();
        self.cmd(&words).await;
        self.url_for("poor", "poor")
    }

    /// What the server answers to one command, on a connection of its own.
    ///
    /// # Panics
    ///
    /// If it answers with an error; use [`conn`](Self::conn) where that is expected.
    pub async fn cmd(&self, words: &[impl AsRef<[u8]>]) -> Value {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word.as_ref());
        }
        let answer = command.query_async(&mut self.conn().await).await;
        answer.unwrap_or_else(|error| panic!("the server refused {}: {error}", shown(words)))
    }

    /// How many of these keys there are; of a cluster's slots each is asked for by itself.
    pub async fn count(&self, keys: &[impl AsRef<[u8]>]) -> usize {
        let mut count = 0;
        for key in keys {
            count += usize::from(self.cmd(&[b"EXISTS", key.as_ref()]).await == Value::Int(1));
        }
        count
    }

    fn running(&self) -> &Process {
        self.process.as_ref().expect("the server is not running: it was ended and not restarted")
    }

    async fn end_by(&mut self, signal: Signal) {
        self.running().signal(signal);
        let mut process = self.process.take().expect("it was running a line ago");
        let ended = process.ends_within(SHUTDOWN).await;
        assert!(
            ended,
            "the server did not end within {SHUTDOWN:?} of {signal:?}:\n{}",
            self.home.last_log_lines()
        );
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.home.keep();
            let (version, folder) = (self.version(), self.home.path().display());
            eprintln!("{version} on port {} left its data and log in {folder}; it last said:", self.port());
            eprintln!("{}", self.home.last_log_lines());
        }
    }
}

fn shown(words: &[impl AsRef<[u8]>]) -> String {
    let words: Vec<String> = words.iter().map(|word| word.as_ref().escape_ascii().to_string()).collect();
    words.join(" ")
}
