//! A real server to throw away, and which binary it is.

use std::env;
use std::path::PathBuf;

use crate::servers::instance::{Instance, ServerSpec};
use crate::servers::server;
use keylapse::{Error, ErrorKind, Result};

/// A Redis or Valkey server of a test's own: on a free port of 127.0.0.1, with
/// expired events on (`notify-keyspace-events Ex`), keeping nothing on disk. It ends
/// with this value.
///
/// For what a [`TestBed`](crate::TestBed) cannot tell: a real server's memory,
/// persistence and speed. It does not go together with a paused clock.
///
/// The binary is `$KEYLAPSE_SERVER`, or the first `redis-server` or `valkey-server`
/// on the `PATH`. Where tests are to pass without one:
///
/// ```
/// use std::time::Duration;
/// use keylapse_testing::Server;
/// use keylapse::{Schedule, Topic};
///
/// # #[tokio::main]
/// // #[tokio::test]
/// async fn timers_are_kept_by_a_real_server() -> keylapse::Result<()> {
///     if !Server::is_installed() {
///         eprintln!("skipped: no server");
///         return Ok(());
///     }
///     let server = Server::start().await?;
///     let orders = Topic::<u64>::new("order:unpaid:{id}")?;
///     let schedule = Schedule::connect(&server.url()).await?;
///     let armed = schedule.arm(&orders, "42", Duration::from_secs(900), &1999).await?;
///     assert!(armed.is_armed());
///     Ok(())
/// }
/// # fn main() -> keylapse::Result<()> { timers_are_kept_by_a_real_server() }
/// ```
#[derive(Debug)]
pub struct LocalServer(Instance);

impl LocalServer {
    /// Whether there is a server to start.
    pub fn is_installed() -> bool {
        find().is_some()
    }

    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// When none is installed, or it does not start within 20 s; the message holds
    /// what it said.
    pub async fn start() -> Result<Self> {
        let binary = server::or_found(None)?;
        let config = ["save \"\"", "appendonly no", "notify-keyspace-events Ex"].map(str::to_owned);
        let plan = ServerSpec { binary, config: config.into(), ..ServerSpec::default() };
        Ok(Self(Instance::start(plan).await?))
    }

    /// Where to connect, without a password.
    pub fn url(&self) -> String {
        self.0.url()
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.0.port()
    }
}

const VARIABLE: &str = "KEYLAPSE_SERVER";
const BINARY_NAMES: [&str; 2] = ["redis-server", "valkey-server"];

/// The binary that the environment names, else the first on the `PATH`.
pub(super) fn find() -> Option<PathBuf> {
    if let Some(named) = env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return Some(named.into());
    }
    let path = env::var_os("PATH")?;
    let candidates = env::split_paths(&path).flat_map(|folder| BINARY_NAMES.map(|name| folder.join(name)));
    candidates.into_iter().find(|candidate| candidate.is_file())
}

/// The one that is given, else the one that is found.
pub(super) fn or_found(given: Option<&PathBuf>) -> Result<PathBuf> {
    given.cloned().or_else(find).ok_or_else(none_found)
}

fn none_found() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "no server for tests: neither {} nor {} is on the PATH; install one, or set {VARIABLE} to the \
             binary of Redis 7.0 or newer, or of Valkey 7.2 or newer",
            BINARY_NAMES[0], BINARY_NAMES[1]
        ),
    )
}
