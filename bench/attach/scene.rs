//! The common part of all scenes: a server with its flags, its keys, and its figures.

use std::time::Duration;

use keylapse_bench::{Fault, info};
use keylapse_support::Server;
use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, sleep};

use crate::line::Line;
use crate::listening::{Listening, key};
use crate::process;
use crate::role::{Report, Role, Worker};

/// The number of keys that one call writes.
const PORTION: usize = 1000;
pub(crate) const POLL: Duration = Duration::from_millis(100);
/// The longest wait for a listener to receive events and to scan.
const READY: Duration = Duration::from_secs(30);

/// The server of one scene.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) server: Server,
    asking: MultiplexedConnection,
}

impl Place {
    pub(crate) async fn open(flags: &str) -> Result<Self, Fault> {
        let server = Server::builder().config("notify-keyspace-events", flags).try_start().await?;
        let asking = server.conn().await;
        Ok(Self { server, asking })
    }

    pub(crate) fn port(&self) -> u16 {
        self.server.port()
    }

    /// Returns the processor time that the server has used, in seconds.
    pub(crate) fn cpu(&self) -> Result<f64, Fault> {
        process::cpu(self.server.pid())
    }

    /// Returns `used_memory`, in bytes.
    pub(crate) async fn memory(&self) -> Result<f64, Fault> {
        info(&mut self.asking.clone(), "memory", "used_memory").await
    }

    /// Returns the memory of all keys of keylapse, in bytes: `MEMORY USAGE` of all of their elements.
    pub(crate) async fn kept_by_keylapse(&self) -> Result<f64, Fault> {
        let mut bytes = 0;
        for name in self.ask::<Vec<String>>(&["KEYS", "keylapse*"]).await? {
            bytes += self.ask::<Option<u64>>(&["MEMORY", "USAGE", &name, "SAMPLES", "0"]).await?.unwrap_or(0);
        }
        Ok(bytes as f64)
    }

    /// Returns `expired_keys`.
    pub(crate) async fn expired(&self) -> Result<u64, Fault> {
        info(&mut self.asking.clone(), "stats", "expired_keys").await
    }

    /// Sends a command to the server.
    pub(crate) async fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> Result<T, Fault> {
        let mut command = redis::Cmd::new();
        words.iter().for_each(|word| {
            command.arg(word);
        });
        Ok(command.query_async(&mut self.asking.clone()).await?)
    }

    /// Writes keys of these numbers with one value, each with its own deadline in ms since 1970.
    pub(crate) fn fill(
        &self,
        numbers: std::ops::Range<u32>,
        value: &[u8],
        deadline: impl Fn(u32) -> u64,
    ) -> Result<(), Fault> {
        let (mut line, numbers) = (Line::to(self.port())?, numbers.collect::<Vec<_>>());
        for portion in numbers.chunks(PORTION) {
            for &number in portion {
                let (name, until) = (key(number), deadline(number).to_string());
                line.push(&[b"SET", name.as_bytes(), value, b"PXAT", until.as_bytes()]);
            }
            line.exchange(portion.len())?;
        }
        Ok(())
    }

    /// Starts a listener with the rights of the user in redis.conf. Waits until it receives events and, if `scans`, has
    /// scanned. After [`READY`], prints a warning and continues without the scan.
    pub(crate) async fn listener(&self, values: usize, scans: bool) -> Result<Worker, Fault> {
        let mut listener = self.start_listener(values, false)?;
        let (began, mut subscribed) = (Instant::now(), false);
        while began.elapsed() < READY {
            if listener.has_ended()? {
                return Err("the listener has ended".into());
            }
            for report in listener.reports() {
                let Report::Counted { scans: made, .. } = report else { continue };
                subscribed = true;
                if made > 0 || !scans {
                    return Ok(listener);
                }
            }
            sleep(POLL).await;
        }
        if !subscribed {
            return Err(format!("the listener received no events within {READY:?}").into());
        }
        println!("  ! {READY:?} after its start the listener has not yet scanned");
        Ok(listener)
    }

    pub(crate) fn start_listener(&self, values: usize, managed: bool) -> Result<Worker, Fault> {
        Worker::start(&Role::Listening(Listening { url: self.server.app_url(), values, managed }))
    }
}
