//! Settings, from environment variables.

use std::str::FromStr;
use std::time::Duration;

use crate::Result;

/// The settings of one run.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Number of other keys, each with a TTL of about an hour.
    pub(crate) foreign: u64,
    /// Number of orders.
    pub(crate) orders: u64,
    /// Time over which the deadlines of the orders are spread evenly.
    pub(crate) span: Duration,
    /// How long the plain subscriber receives events after the last deadline.
    pub(crate) plain: Duration,
    /// `notify-keyspace-events` of both servers.
    pub(crate) flags: String,
    /// Keys that a scan reads per second.
    pub(crate) scan_rate: u32,
    /// Maximum bytes of a value that is kept; 0 keeps none.
    pub(crate) values: usize,
}

impl Settings {
    pub(crate) fn from_env() -> Result<Self> {
        let orders = number("ATTACH_KEYS", 10_000)?;
        let span = number("ATTACH_SECONDS", (orders / 1000).clamp(2, 600))?;
        let settings = Self {
            foreign: number("ATTACH_FOREIGN", 1_000_000)?,
            orders,
            span: Duration::from_secs(span),
            plain: Duration::from_secs(number("ATTACH_PLAIN_SECONDS", 3 * span)?),
            flags: std::env::var("ATTACH_FLAGS").unwrap_or_else(|_| "Ex".to_owned()),
            scan_rate: number("ATTACH_SCAN_RATE", 50_000)?,
            values: number("ATTACH_VALUES", 256)?,
        };
        if settings.orders == 0 || settings.scan_rate == 0 || span == 0 {
            return Err("ATTACH_KEYS, ATTACH_SECONDS and ATTACH_SCAN_RATE must be at least 1".into());
        }
        Ok(settings)
    }

    /// Returns whether the server sends events for changes of keys, so that orders are tracked as they are written.
    pub(crate) fn sends_changes(&self) -> bool {
        self.flags.contains('K') && (self.flags.contains('A') || self.flags.contains(['g', '$']))
    }

    /// Returns how long before the first deadline the orders are written, so that all are tracked by then.
    pub(crate) fn lead(&self) -> Duration {
        if self.sends_changes() {
            return Duration::from_secs(5);
        }
        self.scan().mul_f64(1.5) + Duration::from_secs(3)
    }

    /// Returns how long a scan of all keys takes at this rate.
    pub(crate) fn scan(&self) -> Duration {
        Duration::from_secs_f64((self.foreign + self.orders) as f64 / f64::from(self.scan_rate))
    }
}

fn number<T: FromStr>(name: &str, default: T) -> Result<T> {
    match std::env::var(name) {
        Ok(text) => text.parse().map_err(|_| format!("invalid {name}={text}: write a number").into()),
        Err(_) => Ok(default),
    }
}
