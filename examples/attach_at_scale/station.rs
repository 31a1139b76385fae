//! A server, and a plain subscriber of it: a connection that just SUBSCRIBEs to expired events.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use keylapse_support::Server;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, InfoDict, PushInfo, PushKind, RedisResult, Value, cmd};

use crate::Result;
use crate::writer::Orders;

const EXPIRED: &str = "__keyevent@0__:expired";

/// A server and who listens to it.
pub(crate) struct Station {
    pub(crate) server: Server,
    /// Subscribed. What is asked on it is answered behind everything that was published before.
    subscriber: MultiplexedConnection,
    heard: Arc<Mutex<Heard>>,
}

/// What a plain subscriber has heard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    /// When each order was first announced.
    pub(crate) orders: HashMap<u64, SystemTime>,
    /// keylapse's own keys of a millisecond.
    pub(crate) canaries: u64,
    /// Anything else.
    pub(crate) others: u64,
}

/// What a server says of itself.
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
        // A fast loader may be further ahead than a subscriber; nobody is to be cut off for that.
        let server = Server::builder()
            .config("notify-keyspace-events", flags)
            .config("client-output-buffer-limit", "pubsub 0 0 0")
            .try_start()
            .await?;
        let heard = Arc::<Mutex<Heard>>::default();
        let subscriber = subscribe(&server, heard.clone()).await?;
        Ok(Self { server, subscriber, heard })
    }

    pub(crate) fn heard(&self) -> Heard {
        lock(&self.heard).clone()
    }

    /// What the server says, when all that it had published before was heard.
    pub(crate) async fn read(&self) -> Result<Reading> {
        let info: InfoDict = cmd("INFO").query_async(&mut self.subscriber.clone()).await?;
        let read = |name: &str| info.get::<f64>(name).ok_or_else(|| format!("INFO does not tell {name}"));
        Ok(Reading {
            cpu: read("used_cpu_user")? + read("used_cpu_sys")?,
            memory: read("used_memory")? as i64,
            dataset: read("used_memory_dataset")? as i64,
            expired: read("expired_keys")? as u64,
        })
    }
}

async fn subscribe(server: &Server, heard: Arc<Mutex<Heard>>) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_response_timeout(Some(Duration::from_secs(60)))
        .set_push_sender(move |push: PushInfo| -> std::result::Result<(), redis::aio::SendError> {
            lock(&heard).hear(&push);
            Ok(())
        });
    let client = Client::open(format!("{}?protocol=resp3", server.url()))?;
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    connection.subscribe(EXPIRED).await?;
    Ok(connection)
}

impl Heard {
    fn hear(&mut self, push: &PushInfo) {
        let (PushKind::Message, [_, Value::BulkString(key)]) = (&push.kind, &push.data[..]) else { return };
        if let Some(order) = Orders::number(key) {
            self.orders.entry(order).or_insert_with(SystemTime::now);
        } else if key.starts_with(b"keylapse:{canary/0}:") {
            self.canaries += 1;
        } else {
            self.others += 1;
        }
    }
}

impl Reading {
    /// What was added since, beyond what was added on the other server in the same time.
    pub(crate) fn beyond(since: [Self; 2], now: [Self; 2]) -> (f64, i64, i64) {
        let [cpu, memory, dataset] = [
            |reading: Self| reading.cpu,
            |reading: Self| reading.memory as f64,
            |reading: Self| reading.dataset as f64,
        ]
        .map(|of| (of(now[0]) - of(since[0])) - (of(now[1]) - of(since[1])));
        (cpu, memory as i64, dataset as i64)
    }
}

fn lock(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}
