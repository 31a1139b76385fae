//! The processor time that the server has used.

use redis::aio::MultiplexedConnection;

use crate::Fault;
use crate::orders::Orders;

/// Asks for it over a connection of its own.
#[derive(Debug)]
pub(crate) struct ServerCpu(MultiplexedConnection);

impl ServerCpu {
    /// Connects.
    pub(crate) async fn of(orders: &Orders) -> Result<Self, Fault> {
        let client = redis::Client::open(&*orders.url)?;
        Ok(Self(client.get_multiplexed_async_connection().await?))
    }

    /// Seconds since it was started.
    pub(crate) async fn seconds(&mut self) -> Result<f64, Fault> {
        let info: String = redis::cmd("INFO").arg("cpu").query_async(&mut self.0).await?;
        let used =
            |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
        used("used_cpu_user:")
            .zip(used("used_cpu_sys:"))
            .map(|(user, sys)| user + sys)
            .ok_or_else(|| Fault::from("INFO cpu does not say how much was used"))
    }
}
