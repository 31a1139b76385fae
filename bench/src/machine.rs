//! The machine of a measurement.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::{Fault, Server};

/// The machine, the server and the time of a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Seconds since 1970.
    pub at: u64,
    /// Logical processors.
    pub processors: usize,
    /// The model of the processors; empty if the system does not report it.
    pub model: String,
    /// The server.
    pub server: String,
    /// The load average of the last minute; none if the system does not report it.
    pub load: Option<f64>,
}

impl Machine {
    /// Describes this machine as it is now.
    ///
    /// # Errors
    /// If there is no server.
    pub fn now() -> Result<Self, Fault> {
        let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Ok(Self {
            at: SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            model: model.map_or(String::new(), |(_, name)| name.to_owned()),
            server: Server::at_hand()?,
            load: load(),
        })
    }
}

/// Returns the load average of the last minute.
pub(crate) fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}
