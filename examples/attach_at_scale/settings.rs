//! What can be set, by variables of the environment.

use std::str::FromStr;
use std::time::Duration;

use crate::Result;

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Keys that nobody attaches to, each with about an hour to live.
    pub(crate) foreign: u64,
    /// Orders.
    pub(crate) orders: u64,
    /// The orders are due evenly over this time.
    pub(crate) span: Duration,
    /// The plain subscriber is listened to for so long after the last deadline.
    pub(crate) plain: Duration,
    /// `notify-keyspace-events` of both servers.
    pub(crate) flags: String,
    /// Keys that a scan looks at in a second.
    pub(crate) scan_rate: u32,
    /// The largest value that is kept; 0: none.
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

    /// Whether the server tells of changes of keys, so that orders are enrolled as they are written.
    pub(crate) fn hears_changes(&self) -> bool {
        self.flags.contains('K') && (self.flags.contains('A') || self.flags.contains(['g', '$']))
    }

    /// How long before the first deadline the orders are written: all are to be enrolled by then.
    pub(crate) fn lead(&self) -> Duration {
        if self.hears_changes() {
            return Duration::from_secs(5);
        }
        self.scan().mul_f64(1.5) + Duration::from_secs(3)
    }

    /// How long a scan of everything takes at this rate.
    pub(crate) fn scan(&self) -> Duration {
        Duration::from_secs_f64((self.foreign + self.orders) as f64 / f64::from(self.scan_rate))
    }
}

fn number<T: FromStr>(name: &str, default: T) -> Result<T> {
    match std::env::var(name) {
        Ok(text) => {
            text.parse().map_err(|_| format!("{name}={text} is not a number that can be used").into())
        }
        Err(_) => Ok(default),
    }
}
