//! Connections on which a test itself sends commands.

use std::time::Duration;

use redis::{
    AsyncConnectionConfig, Client, IntoConnectionInfo, RedisResult, aio::MultiplexedConnection,
    io::tcp::TcpSettings,
};

use crate::tls;

/// The default of `redis` is half a second, which a busy machine, `WAIT` or `DEBUG SLEEP` exceeds.
const RESPONSE: Duration = Duration::from_secs(60);
const CONNECT: Duration = Duration::from_secs(10);

/// Connects with time limits that only a stuck server exceeds. On a cluster this connects to the first node of the URL.
pub async fn connect(url: &str) -> RedisResult<MultiplexedConnection> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let url = if rest == url || scheme == "unix" { url.to_owned() } else { format!("redis://{rest}") };
    // Without TCP_NODELAY a small request can wait 40 ms for the acknowledgement of the previous request.
    let info = url.into_connection_info()?.set_tcp_settings(TcpSettings::default().set_nodelay(true));
    let limits = AsyncConnectionConfig::new()
        .set_response_timeout(Some(RESPONSE))
        .set_connection_timeout(Some(CONNECT));
    if !scheme.starts_with("rediss") {
        return Client::open(info)?.get_multiplexed_async_connection_with_config(&limits).await;
    }
    let session = tls::connect(&info).await?;
    let (connection, driver) =
        MultiplexedConnection::new_with_config(info.redis_settings(), session, limits).await?;
    tokio::spawn(driver);
    Ok(connection)
}
