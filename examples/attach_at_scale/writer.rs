//! The other programs, which use Redis without keylapse.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, pipe};

use crate::settings::Settings;

const BATCH: u64 = 10_000;

/// Writes the other keys, with a TTL of about an hour.
pub(crate) async fn fill_cache(mut server: MultiplexedConnection, keys: u64) -> RedisResult<()> {
    for first in (0..keys).step_by(BATCH as usize) {
        let mut batch = pipe();
        for n in first..(first + BATCH).min(keys) {
            batch.cmd("SET").arg(format!("cache:{n}")).arg("page").arg("EX").arg(3600 + n % 600).ignore();
        }
        batch.exec_async(&mut server).await?;
    }
    Ok(())
}

/// The orders of one run, the same on both servers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Orders {
    count: u64,
    span: Duration,
    /// The first deadline, in ms since 1970.
    first: u64,
}

impl Orders {
    pub(crate) fn of(settings: &Settings) -> Self {
        let first = ms(SystemTime::now() + settings.lead());
        Self { count: settings.orders, span: settings.span, first }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the deadline of an order, in ms since 1970.
    pub(crate) fn deadline(&self, order: u64) -> u64 {
        self.first + self.span.as_millis() as u64 * order / self.count
    }

    pub(crate) fn first(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.first)
    }

    pub(crate) fn last(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.deadline(self.count - 1))
    }

    /// Returns the order of a key.
    pub(crate) fn number(key: &[u8]) -> Option<u64> {
        std::str::from_utf8(key).ok()?.strip_prefix("app:order:")?.parse().ok()
    }

    pub(crate) fn value(order: u64) -> String {
        format!(r#"{{"order":{order},"customer":"customer {}","cents":{}}}"#, order % 977, 100 + order % 9900)
    }

    /// Writes all orders.
    pub(crate) async fn write(&self, mut server: MultiplexedConnection) -> RedisResult<()> {
        for first in (0..self.count).step_by(BATCH as usize) {
            let mut batch = pipe();
            for order in first..(first + BATCH).min(self.count) {
                let (key, value) = (format!("app:order:{order}"), Self::value(order));
                batch.cmd("SET").arg(key).arg(value).arg("PXAT").arg(self.deadline(order)).ignore();
            }
            batch.exec_async(&mut server).await?;
        }
        Ok(())
    }
}

/// Returns a time in ms since 1970.
pub(crate) fn ms(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}
