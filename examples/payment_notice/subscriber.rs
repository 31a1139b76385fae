//! A plain subscriber, as articles show it: a connection that says SUBSCRIBE to expired keys.
//!
//! It is a careful one: it subscribes before anything is armed, and again 10 ms after it is cut off.

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

/// Hears of expired keys, and writes down when it heard of which trade.
pub(crate) struct Subscriber {
    heard: Arc<Mutex<Heard>>,
    listening: AbortHandle,
}

/// When each trade's key was announced.
pub(crate) type Heard = HashMap<u64, Vec<SystemTime>>;

impl Subscriber {
    /// Subscribed when this returns.
    pub(crate) async fn of(server: &Server) -> RedisResult<Self> {
        let client = Client::open(server.url())?;
        let heard = Arc::<Mutex<Heard>>::default();
        let first = subscribe(&client).await?;
        let task: JoinHandle<()> = tokio::spawn(listen(client, first, heard.clone()));
        Ok(Self { heard, listening: task.abort_handle() })
    }

    pub(crate) fn heard(&self) -> Heard {
        lock(&self.heard).clone()
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

async fn listen(client: Client, mut connection: PubSub, heard: Arc<Mutex<Heard>>) {
    loop {
        // It ends when the connection does.
        let mut messages = connection.into_on_message();
        while let Some(message) = messages.next().await {
            // This machine's clock, which is also the server's.
            let at = SystemTime::now();
            let Some(trade) = trade(message.get_payload_bytes()) else { continue };
            lock(&heard).entry(trade).or_default().push(at);
        }
        connection = loop {
            tokio::time::sleep(PAUSE).await;
            if let Ok(connection) = subscribe(&client).await {
                break connection;
            }
        };
    }
}

/// Which trade a key is of.
fn trade(key: &[u8]) -> Option<u64> {
    std::str::from_utf8(key.strip_prefix(PREFIX)?).ok()?.parse().ok()
}

fn lock(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}
