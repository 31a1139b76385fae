//! A plain subscriber to events of expired keys, as many articles show it.
//!
//! It subscribes before anything is armed, and again 10 ms after a disconnect.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use futures::StreamExt;
use keylapse_support::Server;
use redis::aio::PubSub;
use redis::{Client, RedisResult};
use tokio::task::{AbortHandle, JoinHandle};

const EXPIRED: &str = "__keyevent@0__:expired";
const PREFIX: &[u8] = b"app:trans:notice:";
const PAUSE: Duration = Duration::from_millis(10);

/// Receives the events of expired keys, and records the time of each.
pub(crate) struct Subscriber {
    received: Arc<Mutex<Received>>,
    listening: AbortHandle,
}

/// The times of the events of each trade's key.
pub(crate) type Received = HashMap<u64, Vec<SystemTime>>;

impl Subscriber {
    /// Subscribes, and receives events in a task.
    pub(crate) async fn of(server: &Server) -> RedisResult<Self> {
        let client = Client::open(server.url())?;
        let received = Arc::<Mutex<Received>>::default();
        let first = subscribe(&client).await?;
        let task: JoinHandle<()> = tokio::spawn(listen(client, first, received.clone()));
        Ok(Self { received, listening: task.abort_handle() })
    }

    pub(crate) fn received(&self) -> Received {
        lock(&self.received).clone()
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn subscribe(client: &Client) -> RedisResult<PubSub> {
    let mut connection = client.get_async_pubsub().await?;
    connection.subscribe(EXPIRED).await?;
    Ok(connection)
}

async fn listen(client: Client, mut connection: PubSub, received: Arc<Mutex<Received>>) {
    loop {
        // The stream ends with the connection.
        let mut messages = connection.into_on_message();
        while let Some(message) = messages.next().await {
            // The server runs on this machine, and has the same clock.
            let at = SystemTime::now();
            let Some(trade) = trade(message.get_payload_bytes()) else { continue };
            lock(&received).entry(trade).or_default().push(at);
        }
        connection = loop {
            tokio::time::sleep(PAUSE).await;
            if let Ok(connection) = subscribe(&client).await {
                break connection;
            }
        };
    }
}

/// Returns the trade of a key.
fn trade(key: &[u8]) -> Option<u64> {
    std::str::from_utf8(key.strip_prefix(PREFIX)?).ok()?.parse().ok()
}

fn lock(received: &Mutex<Received>) -> MutexGuard<'_, Received> {
    received.lock().unwrap_or_else(PoisonError::into_inner)
}
