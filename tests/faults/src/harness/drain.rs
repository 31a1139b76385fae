//! Waiting until nothing is left to do.

use std::time::Duration;

use keylapse_support::Deadline;
use redis::aio::MultiplexedConnection;

use super::Harness;
use crate::job::partitions;

const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl Harness {
    /// Waits until no timer is left, and no key is expected; how many are after this long.
    pub async fn drain(&self, limit: Duration) -> u64 {
        let deadline = Deadline::after(limit);
        let mut connection = self.server().await.conn().await;
        loop {
            let left = timers(&mut connection).await;
            if left == 0 || deadline.is_over() {
                return left;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

/// Records, what is kept behind running attempts, and keys that are expected, over all partitions.
/// docs/internals/wire.md names them.
async fn timers(connection: &mut MultiplexedConnection) -> u64 {
    let mut pipe = redis::pipe();
    for partition in partitions() {
        for hash in ["timers", "queued", "tracked"] {
            pipe.hlen(format!("{partition}:{hash}"));
        }
    }
    let lengths: Vec<u64> =
        pipe.query_async(connection).await.expect("the server answers: all faults are over");
    lengths.iter().sum()
}
