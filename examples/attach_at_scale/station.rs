//! A server with a plain subscriber, a connection that only SUBSCRIBEs to expired events.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use keylapse_support::Server;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, InfoDict, PushInfo, PushKind, RedisResult, Value, cmd};

use crate::Result;
use crate::writer::Orders;

const EXPIRED: &str = "__keyevent@0__:expired";

/// A server and its plain subscriber.
pub(crate) struct Station {
    pub(crate) server: Server,
    /// A subscribed connection. A command on it is answered after all messages that were published before.
    subscriber: MultiplexedConnection,
    received: Arc<Mutex<Received>>,
}

/// The events that a plain subscriber has received.
#[derive(Clone, Debug, Default)]
pub(crate) struct Received {
    /// The time of the first event of each order.
    pub(crate) orders: HashMap<u64, SystemTime>,
    /// Number of events of heartbeat keys, which keylapse sets with a TTL of 1 ms.
    pub(crate) heartbeats: u64,
    /// Number of events of other keys.
    pub(crate) others: u64,
}

/// Figures of a server's `INFO`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reading {
    /// `used_cpu_user` and `used_cpu_sys`.
    pub(crate) cpu: f64,
    /// `used_memory`.
    pub(crate) memory: i64,
    /// `used_memory_dataset`: without connections, scripts and the main table.
    pub(crate) dataset: i64,
    /// `expired_keys`.
    pub(crate) expired: u64,
}

impl Station {
    pub(crate) async fn open(flags: &str) -> Result<Self> {
        // Without a limit, a subscriber that is slower than the loader is not disconnected.
        let server = Server::builder()
            .config("notify-keyspace-events", flags)
            .config("client-output-buffer-limit", "pubsub 0 0 0")
            .try_start()
            .await?;
        let received = Arc::<Mutex<Received>>::default();
        let subscriber = subscribe(&server, received.clone()).await?;
        Ok(Self { server, subscriber, received })
    }

    pub(crate) fn received(&self) -> Received {
        lock(&self.received).clone()
    }

    /// Reads the server's `INFO`, after all messages that were published before.
    pub(crate) async fn read(&self) -> Result<Reading> {
        let info: InfoDict = cmd("INFO").query_async(&mut self.subscriber.clone()).await?;
        let read = |name: &str| info.get::<f64>(name).ok_or_else(|| format!("INFO has no field {name}"));
        Ok(Reading {
            cpu: read("used_cpu_user")? + read("used_cpu_sys")?,
            memory: read("used_memory")? as i64,
            dataset: read("used_memory_dataset")? as i64,
            expired: read("expired_keys")? as u64,
        })
    }
}

async fn subscribe(server: &Server, received: Arc<Mutex<Received>>) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_response_timeout(Some(Duration::from_secs(60)))
        .set_push_sender(move |push: PushInfo| -> std::result::Result<(), redis::aio::SendError> {
            lock(&received).receive(&push);
            Ok(())
        });
    let client = Client::open(format!("{}?protocol=resp3", server.url()))?;
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    connection.subscribe(EXPIRED).await?;
    Ok(connection)
}

impl Received {
    fn receive(&mut self, push: &PushInfo) {
        let (PushKind::Message, [_, Value::BulkString(key)]) = (&push.kind, &push.data[..]) else { return };
        if let Some(order) = Orders::number(key) {
            self.orders.entry(order).or_insert_with(SystemTime::now);
        } else if key.starts_with(b"keylapse:{heartbeat/0}:") {
            self.heartbeats += 1;
        } else {
            self.others += 1;
        }
    }
}

impl Reading {
    /// Returns the growth on the first server, less that on the other server in the same time.
    pub(crate) fn excess(since: [Self; 2], now: [Self; 2]) -> (f64, i64, i64) {
        let [cpu, memory, dataset] = [
            |reading: Self| reading.cpu,
            |reading: Self| reading.memory as f64,
            |reading: Self| reading.dataset as f64,
        ]
        .map(|of| (of(now[0]) - of(since[0])) - (of(now[1]) - of(since[1])));
        (cpu, memory as i64, dataset as i64)
    }
}

fn lock(received: &Mutex<Received>) -> MutexGuard<'_, Received> {
    received.lock().unwrap_or_else(PoisonError::into_inner)
}
