//! A delaying queue: messages in a sorted set, and threads that poll it.
//!
//! Two threads poll the set, and sleep half a second if no message is due. A thread handles a message
//! only if its own ZREM removed it. SIGTERM aborts the threads.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, Client};
use tokio::signal::unix::{SignalKind, signal};

use crate::stage::World;

const QUEUE: &str = "hand:delayed";
const THREADS: usize = 2;
const PAUSE: Duration = Duration::from_millis(500);

/// Adds a message to the queue.
pub async fn send(redis: &mut MultiplexedConnection, message: &str, due: SystemTime) -> anyhow::Result<()> {
    Ok(redis.zadd(QUEUE, message, millis(due)?).await?)
}

/// Runs two threads until SIGTERM, then aborts them.
pub async fn receive(url: String, world: World) -> anyhow::Result<()> {
    let client = Client::open(url)?;
    let threads: Vec<_> =
        (0..THREADS).map(|_| tokio::spawn(handle_messages(client.clone(), world.clone()))).collect();
    let abort_handles: Vec<_> = threads.iter().map(|thread| thread.abort_handle()).collect();
    signal(SignalKind::terminate())?.recv().await;
    abort_handles.iter().for_each(|thread| thread.abort());
    join_all(threads).await;
    Ok(())
}

/// Handles messages until the thread is aborted or a message fails.
async fn handle_messages(client: Client, world: World) -> anyhow::Result<()> {
    let mut redis = client.get_multiplexed_async_connection().await?;
    loop {
        let due: Vec<String> = redis.zrangebyscore_limit(QUEUE, 0, millis(SystemTime::now())?, 0, 1).await?;
        let Some(message) = due.first() else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let taken: u32 = redis.zrem(QUEUE, message).await?;
        if taken == 1 {
            world.act(message, message).await?;
        }
    }
}

fn millis(time: SystemTime) -> anyhow::Result<u64> {
    Ok(u64::try_from(time.duration_since(UNIX_EPOCH)?.as_millis())?)
}
