//! Real servers to throw away: one, a cluster, and a group that sentinels watch.

mod ask;
mod binary;
mod cluster;
mod home;
mod instance;
mod node;
mod ports;
mod process;
mod replication;
mod reply;
mod sentinel;
mod server;
mod until;

pub use cluster::{Cluster, ClusterBuilder, SlotMove};
pub use node::Node;
pub use sentinel::{SentinelGroup, SentinelGroupBuilder};
pub use server::Server;

use keylapse::{Error, ErrorKind, Result};

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
