//! The processor time that the server has used.

use keylapse_bench::info;
use redis::aio::MultiplexedConnection;

use crate::Fault;
use crate::orders::Orders;

/// Reads the processor time over a connection of its own.
#[derive(Debug)]
pub(crate) struct ServerCpu(MultiplexedConnection);

impl ServerCpu {
    /// Connects.
    pub(crate) async fn of(orders: &Orders) -> Result<Self, Fault> {
        let client = redis::Client::open(&*orders.url)?;
        Ok(Self(client.get_multiplexed_async_connection().await?))
    }

    /// Returns the processor time since the server's start, in seconds.
    pub(crate) async fn seconds(&mut self) -> Result<f64, Fault> {
        let mut used = 0.0;
        for part in ["used_cpu_user", "used_cpu_sys"] {
            used += info::<f64>(&mut self.0, "cpu", part).await?;
        }
        Ok(used)
    }
}
