//! Real servers for tests: a single one, a cluster, and a group with sentinels.

mod ask;
mod cluster;
mod instance;
mod node;
mod process;
mod sentinel;
mod server;

use std::time::{Duration, Instant};

use keylapse::{Error, ErrorKind, Result};

pub use cluster::{LocalCluster, LocalClusterBuilder, SlotMove};
pub use node::LocalNode;
pub use sentinel::{SentinelGroup, SentinelGroupBuilder};
pub use server::LocalServer;

/// Returns a number of processes, or an error if it is zero or more than 1,000.
fn bounded(what: &str, count: usize) -> Result<usize> {
    match count {
        1..=1000 => Ok(count),
        _ => Err(Error::invalid(format!("invalid number of {what}: {count}; start 1 to 1,000"))),
    }
}

fn failed(reason: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable, format!("a test server failed: {reason}"))
}

const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Calls `find` until it succeeds. Any error is tried again, because servers start and stop. After `limit` it returns an
/// error with `what` and the last error.
pub(super) async fn poll_until<T>(
    limit: Duration,
    what: &str,
    mut find: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    let begun = Instant::now();
    loop {
        match find().await {
            Ok(found) => return Ok(found),
            Err(missing) if begun.elapsed() >= limit => {
                let message = format!("waited {limit:?} for {what} in vain; the last error: {missing}");
                return Err(Error::new(ErrorKind::Timeout, message));
            }
            Err(_) => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}
