//! Connections, over sockets or over streams that the application opens.

use std::io;
use std::sync::Arc;

use futures::future::BoxFuture;
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, Client, RedisResult};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::connection::address::Address;

/// Anything that carries a connection: a tunnel, a TLS session.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A stream that is being opened.
type Opening = BoxFuture<'static, io::Result<Box<dyn Stream>>>;

/// Opens streams to a server.
#[derive(Clone)]
pub(crate) struct Streams(Arc<dyn Fn() -> Opening + Send + Sync>);

impl Streams {
    pub(crate) fn new<F, S>(open: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        Self(Arc::new(move || {
            let opening = open();
            Box::pin(async move { Ok(Box::new(opening.await?) as Box<dyn Stream>) })
        }))
    }
}

impl Address {
    /// Connects and logs in.
    pub(crate) async fn connect(&self, config: &AsyncConnectionConfig) -> RedisResult<MultiplexedConnection> {
        let Some(streams) = &self.streams else {
            let client = Client::open(self.info.clone())?;
            return client.get_multiplexed_async_connection_with_config(config).await;
        };
        let stream = streams.0().await?;
        let settings = self.info.redis_settings();
        let (connection, driver) =
            MultiplexedConnection::new_with_config(settings, stream, config.clone()).await?;
        tokio::spawn(driver);
        Ok(connection)
    }

    /// A connection for a subscription in RESP2.
    pub(crate) async fn connect_pubsub(&self) -> RedisResult<PubSub> {
        match &self.streams {
            Some(streams) => PubSub::new(self.info.redis_settings(), streams.0().await?).await,
            None => Client::open(self.info.clone())?.get_async_pubsub().await,
        }
    }
}
