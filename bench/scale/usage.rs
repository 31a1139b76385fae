//! The resources that servers and this process have used.

use std::collections::HashMap;
use std::ops::{Add, Sub};
use std::time::Duration;

use keylapse_bench::Fault;
use redis::aio::MultiplexedConnection;
use tokio::time::sleep;

use crate::servers::Servers;

/// Longer than any answer takes on a busy machine.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The resources that one server has used since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    /// Processor time of all of its threads, in µs.
    pub(crate) processor_us: f64,
    /// Commands, including those of scripts.
    pub(crate) commands: f64,
    /// Reads from connections. Commands that arrive together count once.
    pub(crate) requests: f64,
    pub(crate) bytes_in: f64,
    pub(crate) bytes_out: f64,
    /// Bytes of memory that it has allocated at the moment.
    pub(crate) memory: f64,
}

/// Reads the usage of servers.
pub(crate) struct Meter(Vec<MultiplexedConnection>);

impl Meter {
    /// Connects to all servers.
    pub(crate) async fn of(servers: &Servers) -> Result<Self, Fault> {
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(ANSWER_TIMEOUT));
        let mut connections = Vec::new();
        for url in servers.each() {
            let client = redis::Client::open(url)?;
            connections.push(client.get_multiplexed_async_connection_with_config(&config).await?);
        }
        let mut meter = Self(connections);
        meter.look().await?; // the first call of a command allocates memory that stays
        Ok(meter)
    }

    /// Returns the usage of each server.
    pub(crate) async fn look(&mut self) -> Result<Vec<Usage>, Fault> {
        let mut all = Vec::new();
        for connection in &mut self.0 {
            all.push(Usage::read(&Info::of(connection).await?)?);
        }
        Ok(all)
    }

    /// Returns the usage of each server since `before`, without that of this call.
    pub(crate) async fn since(&mut self, before: &[Usage]) -> Result<Vec<Usage>, Fault> {
        let own = Usage { commands: 1.0, requests: 1.0, ..Usage::default() };
        let now = self.look().await?;
        Ok(now.into_iter().zip(before).map(|(now, before)| now - *before - own).collect())
    }

    /// Sends each server its pipeline, and waits for the answers.
    pub(crate) async fn send(&mut self, commands: Vec<redis::Pipeline>) -> Result<(), Fault> {
        let each = self.0.iter_mut().zip(commands);
        for (connection, commands) in each.filter(|(_, commands)| !commands.is_empty()) {
            commands.exec_async(connection).await?;
        }
        Ok(())
    }

    /// Makes the first server fork for a snapshot. Returns its pause, in ms for each GiB of its memory.
    pub(crate) async fn fork(&mut self) -> Result<f64, Fault> {
        let connection = &mut self.0[0];
        redis::cmd("BGSAVE").exec_async(connection).await?;
        let mut info = Info::of(connection).await?;
        while info.number("rdb_bgsave_in_progress")? > 0.0 {
            sleep(Duration::from_millis(50)).await;
            info = Info::of(connection).await?;
        }
        let gib = info.number("used_memory")? / f64::from(1 << 30);
        Ok(info.number("latest_fork_usec")? / 1e3 / gib)
    }
}

impl Usage {
    fn read(info: &Info) -> Result<Self, Fault> {
        Ok(Self {
            processor_us: (info.number("used_cpu_user")? + info.number("used_cpu_sys")?) * 1e6,
            commands: info.number("total_commands_processed")?,
            requests: info.number("total_reads_processed")?,
            bytes_in: info.number("total_net_input_bytes")?,
            bytes_out: info.number("total_net_output_bytes")?,
            memory: info.number("used_memory")?,
        })
    }

    fn zip(self, other: Self, with: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            processor_us: with(self.processor_us, other.processor_us),
            commands: with(self.commands, other.commands),
            requests: with(self.requests, other.requests),
            bytes_in: with(self.bytes_in, other.bytes_in),
            bytes_out: with(self.bytes_out, other.bytes_out),
            memory: with(self.memory, other.memory),
        }
    }
}

impl Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }
}

impl Sub for Usage {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.zip(other, |a, b| a - b)
    }
}

/// The fields of `INFO`.
struct Info(HashMap<String, String>);

impl Info {
    async fn of(connection: &mut MultiplexedConnection) -> Result<Self, Fault> {
        let text: String = redis::cmd("INFO").query_async(connection).await?;
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        Ok(Self(pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()))
    }

    fn number(&self, name: &str) -> Result<f64, Fault> {
        let text = self.0.get(name).ok_or_else(|| format!("INFO has no {name}"))?;
        text.parse().map_err(|_| format!("INFO has {name}:{text}, which is not a number").into())
    }
}

/// Returns the processor time of this process in µs (`proc(5)`), in steps of 10 ms: Linux counts 100 ticks a second.
pub(crate) fn own_processor_us() -> Result<f64, Fault> {
    let stat = std::fs::read_to_string("/proc/self/stat").map_err(|error| format!("/proc: {error}"))?;
    let fields = stat.rsplit_once(')').ok_or("/proc/self/stat has an unknown format")?.1;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    Ok(ticks.sum::<Result<f64, _>>()? * 1e4)
}
