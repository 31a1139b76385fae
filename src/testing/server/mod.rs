//! A real server to throw away.

mod binary;
mod process;

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Client, InfoDict, RedisResult};

use crate::error::{Error, ErrorKind, Result};
use crate::testing::server::process::Process;

/// How long a server may take to start.
const READY: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);
const PORTS_TO_TRY: usize = 20;

/// A Redis or Valkey server of a test's own: on a free port of 127.0.0.1, with
/// expired events on (`notify-keyspace-events Ex`), keeping nothing on disk. It ends
/// with this value.
///
/// For what a [`TestBed`](super::TestBed) cannot tell: a real server's memory,
/// persistence and speed. It does not go together with a paused clock.
///
/// The binary is `$KEYLAPSE_SERVER`, or the first `redis-server` or `valkey-server`
/// on the `PATH`. Where tests are to pass without one:
///
/// ```
/// use std::time::Duration;
/// use keylapse::testing::Server;
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
pub struct Server {
    port: u16,
    _process: Process,
}

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
        let binary = binary::find().ok_or_else(binary::none_found)?;
        for _ in 0..PORTS_TO_TRY {
            let port = free_port()?;
            let mut process = Process::start(&binary, port)?;
            if is_ready(&mut process, port).await? {
                return Ok(Self { port, _process: process });
            }
        }
        Err(failed(format!("{PORTS_TO_TRY} free ports in a row were taken by others")))
    }

    /// Where to connect, without a password.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }
}

fn failed(reason: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable, format!("no server for tests: {reason}"))
}

/// One that nothing listens on at this moment; somebody else may be quicker.
fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).and_then(|free| free.local_addr());
    listener.map(|address| address.port()).map_err(failed)
}

/// Waits until the server answers; false if somebody else has its port.
async fn is_ready(process: &mut Process, port: u16) -> Result<bool> {
    let until = Instant::now() + READY;
    while !answers(port, process.id()).await.unwrap_or(false) {
        if process.has_ended() {
            let log = process.log();
            return if log.contains("Address already in use") { Ok(false) } else { Err(failed(log)) };
        }
        if Instant::now() >= until {
            return Err(failed(format!("it did not answer within {READY:?}; {}", process.log())));
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(true)
}

/// Whether it is *this* process that answers on the port.
async fn answers(port: u16, process: u32) -> RedisResult<bool> {
    let client = Client::open(format!("redis://127.0.0.1:{port}/"))?;
    let mut connection: MultiplexedConnection = client.get_multiplexed_async_connection().await?;
    let info: InfoDict = redis::cmd("INFO").arg("server").query_async(&mut connection).await?;
    Ok(info.get::<u32>("process_id") == Some(process))
}
