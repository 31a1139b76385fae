//! A single real server for tests, and the search for its binary.

use std::env;
use std::path::PathBuf;

use crate::servers::instance::{Instance, ServerSpec};
use crate::servers::server;
use keylapse::{Error, ErrorKind, Result};

/// A Redis or Valkey server for one test, on a free port of 127.0.0.1.
///
/// It publishes expired events (`notify-keyspace-events Ex`) and stores nothing on disk. It ends when this value is
/// dropped.
///
/// Use it to test the memory, persistence and speed of a real server, which a [`TestBed`](crate::TestBed) does not have.
/// It does not work with a paused clock.
///
/// The binary is `$KEYLAPSE_SERVER`, or the first `redis-server` or `valkey-server` on the `PATH`. A test can skip itself
/// if no binary is installed:
///
/// ```
/// use std::time::Duration;
/// use keylapse_testing::LocalServer;
/// use keylapse::{Schedule, Topic};
///
/// # #[tokio::main]
/// // #[tokio::test]
/// async fn timers_are_kept_by_a_real_server() -> keylapse::Result<()> {
///     if !LocalServer::is_installed() {
///         eprintln!("skipped: no server");
///         return Ok(());
///     }
///     let server = LocalServer::start().await?;
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
    /// Returns whether a binary is installed.
    pub fn is_installed() -> bool {
        find().is_some()
    }

    /// Starts a server and waits until it replies.
    ///
    /// # Errors
    /// Returns an error of kind [`Unsupported`](ErrorKind::Unsupported) if no binary is installed. Returns an error with
    /// the server's log if it does not start within 20 s.
    pub async fn start() -> Result<Self> {
        let binary = server::or_found(None)?;
        let config = ["save \"\"", "appendonly no", "notify-keyspace-events Ex"].map(str::to_owned);
        let spec = ServerSpec { binary, config: config.into(), ..ServerSpec::default() };
        Ok(Self(Instance::start(spec).await?))
    }

    /// Returns the URL of the server, which has no password.
    pub fn url(&self) -> String {
        self.0.url()
    }

    /// Returns the port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.0.port()
    }
}

const VARIABLE: &str = "KEYLAPSE_SERVER";
const BINARY_NAMES: [&str; 2] = ["redis-server", "valkey-server"];

/// Returns the binary that the environment names, else the first on the `PATH`.
pub(super) fn find() -> Option<PathBuf> {
    if let Some(named) = env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return Some(named.into());
    }
    let path = env::var_os("PATH")?;
    let candidates = env::split_paths(&path).flat_map(|folder| BINARY_NAMES.map(|name| folder.join(name)));
    candidates.into_iter().find(|candidate| candidate.is_file())
}

/// Returns the given binary, else the one that [`find`] returns.
pub(super) fn or_found(given: Option<&PathBuf>) -> Result<PathBuf> {
    given.cloned().or_else(find).ok_or_else(none_found)
}

fn none_found() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "no server for tests: neither {} nor {} is on the PATH. Install one, or set {VARIABLE} to the \
             binary of Redis 7.0 or newer, or of Valkey 7.2 or newer",
            BINARY_NAMES[0], BINARY_NAMES[1]
        ),
    )
}
