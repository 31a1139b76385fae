//! Real servers to throw away: one, a cluster, and a group that sentinels watch.

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

/// So many processes, if that can be meant.
fn bounded(what: &str, count: usize) -> Result<usize> {
    match count {
        1..=1000 => Ok(count),
        _ => Err(Error::invalid(format!("1 to 1,000 {what} can be started, and not {count}"))),
    }
}

fn failed(reason: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable, format!("no server for tests: {reason}"))
}

const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Asks again and again until this is found. What fails may work next time: servers come and go. The
/// error says what was waited for, and why it was not there at the end.
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
                let message = format!("waited {limit:?} for {what} in vain; at last: {missing}");
                return Err(Error::new(ErrorKind::Timeout, message));
            }
            Err(_) => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}
