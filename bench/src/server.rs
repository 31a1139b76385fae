//! A server for one run.

use std::str::FromStr;

use redis::aio::MultiplexedConnection;
use redis::{Value, from_redis_value};

use crate::Fault;

/// How many foreign keys one script writes: the server answers nobody else meanwhile.
const PORTION: usize = 50_000;

/// A server that was just started, keeps nothing on disk, and ends with this value.
#[derive(Debug)]
pub struct Server(keylapse_support::Server);

impl Server {
    /// Which server there is to start; why none.
    ///
    /// # Errors
    /// If there is none.
    pub fn at_hand() -> Result<String, Fault> {
        Ok(keylapse_support::Binary::find().map(|binary| binary.version().to_string())?)
    }

    /// Starts one, with the repository's `redis.conf` but for persistence.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn start() -> Result<Self, Fault> {
        Ok(Self(keylapse_support::Server::builder().try_start().await?))
    }

    /// Where it is.
    pub fn url(&self) -> String {
        self.0.url().trim_end_matches('/').to_owned()
    }

    /// Writes keys that are nobody's business, which live for an hour and more.
    pub async fn fill(&self, count: usize) {
        let script = "for i = ARGV[1], ARGV[2] do \
                      redis.call('SET', 'foreign:' .. i, '', 'EX', 3600 + i % 1000) end";
        for from in (0..count).step_by(PORTION) {
            let to = (from + PORTION).min(count) - 1;
            self.0.cmd(&["EVAL", script, "0", &from.to_string(), &to.to_string()]).await;
        }
    }

    /// Bytes that its data takes (`used_memory`).
    ///
    /// # Errors
    /// If it does not say.
    pub async fn memory(&self) -> Result<u64, Fault> {
        let mut connection = self.0.conn().await;
        // The first call of a command is given a histogram of its own, which is no system's.
        let _: u64 = info(&mut connection, "memory", "used_memory").await?;
        info(&mut connection, "memory", "used_memory").await
    }

    /// A line to it that counts what is sent.
    pub async fn line(&self) -> Line {
        Line(keylapse_support::Proxy::before(&self.0).await)
    }

    /// Counts what it executes.
    pub async fn counter(&self) -> Counter {
        Counter { connection: self.0.conn().await, looks: 0 }
    }
}

/// A line to a server that counts what is sent.
#[derive(Debug)]
pub struct Line(keylapse_support::Proxy);

impl Line {
    /// Where it begins.
    pub fn url(&self) -> String {
        self.0.url().trim_end_matches('/').to_owned()
    }

    /// How many requests have been sent over all connections; what is sent at once counts once.
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
    /// How many commands it has executed, those of scripts included and those of this counter not.
    ///
    /// # Errors
    /// If it does not say.
    pub async fn commands(&mut self) -> Result<u64, Fault> {
        let all: u64 = info(&mut self.connection, "stats", "total_commands_processed").await?;
        self.looks += 1; // it counts a command when it has executed it
        Ok(all - (self.looks - 1))
    }
}

/// What INFO says under a name.
///
/// # Errors
/// If it does not say, or something else than was asked for.
pub async fn info<T>(connection: &mut MultiplexedConnection, section: &str, name: &str) -> Result<T, Fault>
where
    T: FromStr<Err: Into<Fault>>,
{
    let answer: Value = redis::cmd("INFO").arg(section).query_async(connection).await?;
    let text: String = from_redis_value(answer)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.ok_or_else(|| format!("INFO has no {name}"))?.trim().parse().map_err(Into::into)
}
