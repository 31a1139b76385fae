//! A real server to throw away.

use crate::servers::binary;
use crate::servers::instance::{Instance, Plan};
use keylapse::Result;

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
pub struct Server(Instance);

impl Server {
    /// Whether there is a server to start.
    pub fn is_installed() -> bool {
        binary::find().is_some()
    }

    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// When none is installed, or it does not start within 20 s; the message holds
    /// what it said.
    pub async fn start() -> Result<Self> {
        let binary = binary::or_found(None)?;
        let config = ["save \"\"", "appendonly no", "notify-keyspace-events Ex"].map(str::to_owned);
        let plan = Plan { binary, config: config.into(), ..Plan::default() };
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
