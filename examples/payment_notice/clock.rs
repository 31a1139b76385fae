//! The server's clock.

use std::time::{Duration, SystemTime};

use keylapse_support::Server;
use redis::aio::MultiplexedConnection;

/// Reads the server's clock, on a connection that nothing else uses.
#[derive(Clone)]
pub(crate) struct Clock(MultiplexedConnection);

impl Clock {
    pub(crate) async fn of(server: &Server) -> Self {
        Self(server.conn().await)
    }

    /// Reads the server's clock.
    pub(crate) async fn now(&self) -> redis::RedisResult<SystemTime> {
        let (secs, micros): (u64, u64) = redis::cmd("TIME").query_async(&mut self.0.clone()).await?;
        Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(secs) + Duration::from_micros(micros))
    }
}
