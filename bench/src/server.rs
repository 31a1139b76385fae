//! A server for one run.

use std::str::FromStr;

use redis::aio::MultiplexedConnection;
use redis::{Value, from_redis_value};

use crate::Fault;

/// Foreign keys that one script writes. The server answers no other client while a script runs.
const PORTION: usize = 50_000;

/// A new server that keeps nothing on disk, and stops when this value is dropped.
#[derive(Debug)]
pub struct Server(keylapse_support::Server);

impl Server {
    /// Returns the version of the server that [`Self::start`] starts.
    ///
    /// # Errors
    /// If no server is found.
    pub fn at_hand() -> Result<String, Fault> {
        Ok(keylapse_support::Binary::find().map(|binary| binary.version().to_string())?)
    }

    /// Starts a server with the repository's `redis.conf`, without persistence.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn start() -> Result<Self, Fault> {
        Ok(Self(keylapse_support::Server::builder().try_start().await?))
    }

    /// Returns the URL of the server.
    pub fn url(&self) -> String {
        self.0.url().trim_end_matches('/').to_owned()
    }

    /// Writes foreign keys with a TTL of an hour or more.
    pub async fn fill(&self, count: usize) {
        let script = "for i = ARGV[1], ARGV[2] do \
                      redis.call('SET', 'foreign:' .. i, '', 'EX', 3600 + i % 1000) end";
        for from in (0..count).step_by(PORTION) {
            let to = (from + PORTION).min(count) - 1;
            self.0.cmd(&["EVAL", script, "0", &from.to_string(), &to.to_string()]).await;
        }
    }

    /// Returns the bytes of memory that the server uses (`used_memory`).
    ///
    /// # Errors
    /// If `INFO` does not have the figure.
    pub async fn memory(&self) -> Result<u64, Fault> {
        let mut connection = self.0.conn().await;
        // The first call of a command allocates its latency histogram, which must not count for a system.
        let _: u64 = info(&mut connection, "memory", "used_memory").await?;
        info(&mut connection, "memory", "used_memory").await
    }

    /// Starts a proxy before the server that counts requests.
    pub async fn proxy(&self) -> CountingProxy {
        CountingProxy(keylapse_support::Proxy::before(&self.0).await)
    }

    /// Connects a counter of executed commands.
    pub async fn counter(&self) -> Counter {
        Counter { connection: self.0.conn().await, looks: 0 }
    }
}

/// A proxy before a server that counts requests.
#[derive(Debug)]
pub struct CountingProxy(keylapse_support::Proxy);

impl CountingProxy {
    /// Returns the URL of the proxy.
    pub fn url(&self) -> String {
        self.0.url().trim_end_matches('/').to_owned()
    }

    /// Returns the number of requests over all connections. Commands that are sent together count once.
    pub fn requests(&self) -> u64 {
        self.0.batches()
    }
}

/// Counts the commands that a server executes.
#[derive(Debug)]
pub struct Counter {
    connection: MultiplexedConnection,
    looks: u64,
}

impl Counter {
    /// Returns the number of executed commands, including those of scripts, without those of this counter.
    ///
    /// # Errors
    /// If `INFO` does not have the figure.
    pub async fn commands(&mut self) -> Result<u64, Fault> {
        let all: u64 = info(&mut self.connection, "stats", "total_commands_processed").await?;
        self.looks += 1; // the server counts a command after it has executed it
        Ok(all - (self.looks - 1))
    }
}

/// Returns the value of a field of `INFO`.
///
/// # Errors
/// If the field does not exist, or has another type.
pub async fn info<T>(connection: &mut MultiplexedConnection, section: &str, name: &str) -> Result<T, Fault>
where
    T: FromStr<Err: Into<Fault>>,
{
    let answer: Value = redis::cmd("INFO").arg(section).query_async(connection).await?;
    let text: String = from_redis_value(answer)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.ok_or_else(|| format!("INFO has no {name}"))?.trim().parse().map_err(Into::into)
}
