//! Scripts on the connection of the subscription.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, RedisResult, cmd};

use crate::wire::scripts::Script;

/// Makes a call of a script, and loads the script first where the server does not have it.
pub(super) async fn run<T: FromRedisValue>(
    mut connection: MultiplexedConnection,
    script: &Script,
    call: &Cmd,
) -> RedisResult<T> {
    match call.query_async(&mut connection).await {
        Err(error) if error.code() == Some("NOSCRIPT") => {
            cmd("SCRIPT").arg("LOAD").arg(&script.text).exec_async(&mut connection).await?;
            call.query_async(&mut connection).await
        }
        other => other,
    }
}
