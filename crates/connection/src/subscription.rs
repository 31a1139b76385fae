//! Connections that are subscribed: in RESP3, or in RESP2 where a proxy speaks nothing else.

use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Cmd, ErrorKind as RedisErrorKind, Pipeline, PushInfo, PushKind, RedisError,
    RedisResult, ToRedisArgs, Value,
};

use crate::address::Address;
use crate::classify::classify;
use crate::error::{ErrorKind, Result};

/// A connection and each of its answers come within this.
const WITHIN: Duration = Duration::from_secs(5);

/// A subscribed connection, on which commands are asked, too. What is published before an answer is passed on before it, but in
/// RESP2. When the last clone is dropped, nothing more is passed on.
#[derive(Clone, Debug)]
pub struct Subscription(MultiplexedConnection);

impl Subscription {
    /// Connects. All that the server sends unasked goes to `hear`, which runs in the connection's driver and must not block.
    ///
    /// # Errors
    /// When no connection in RESP3 can be made; [`lacks_resp3`] tells whether one in RESP2 may be.
    pub async fn in_resp3(
        address: &Address,
        hear: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> RedisResult<Self> {
        let push = move |push| {
            hear(push);
            Ok::<(), Infallible>(())
        };
        address.resp3().connect(&config().set_push_sender(push)).await.map(Self)
    }

    /// Connects in RESP2, where one connection is subscribed to this channel and another is asked. Messages are passed on until
    /// `closed` completes; `ended` is called in the end.
    ///
    /// # Errors
    /// When no connection can be made, or the channel is refused.
    pub async fn in_resp2(
        address: &Address,
        channel: &str,
        hear: impl Fn(PushInfo) + Send + Sync + 'static,
        closed: impl Future<Output = ()> + Send + 'static,
        ended: impl FnOnce() + Send + 'static,
    ) -> RedisResult<Self> {
        let connection = address.connect(&config()).await?;
        let (mut sink, messages) = address.connect_pubsub().await?.split();
        sink.subscribe(channel).await?;
        tokio::spawn(async move {
            let _subscribed = sink; // dropping it would end the subscription
            let mut messages = pin!(messages.take_until(closed));
            while let Some(message) = messages.next().await {
                let data = [message.get_channel_name().as_bytes(), message.get_payload_bytes()];
                let data = data.map(|bytes| Value::BulkString(bytes.to_vec())).into();
                hear(PushInfo { kind: PushKind::Message, data });
            }
            ended();
        });
        Ok(Self(connection))
    }

    /// Subscribes to a channel.
    ///
    /// # Errors
    /// When it is refused, or the connection ends.
    pub async fn subscribe(&mut self, channel: impl ToRedisArgs) -> RedisResult<()> {
        self.0.subscribe(channel).await
    }

    /// Subscribes to all channels of a pattern.
    ///
    /// # Errors
    /// When it is refused, or the connection ends.
    pub async fn psubscribe(&mut self, pattern: impl ToRedisArgs) -> RedisResult<()> {
        self.0.psubscribe(pattern).await
    }

    /// Sends one command.
    ///
    /// # Errors
    /// An error of the server, or of the connection.
    pub async fn ask(&self, command: &Cmd) -> RedisResult<Value> {
        self.0.clone().send_packed_command(command).await.and_then(Value::extract_error)
    }

    /// Sends several commands in one request. Among the answers there may be errors of the server.
    ///
    /// # Errors
    /// When the connection ends.
    pub async fn ask_each(&self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        self.0.clone().send_packed_commands(commands, 0, commands.len()).await
    }

    /// Sends one command.
    ///
    /// # Errors
    /// An error of the server comes with its code.
    pub async fn call(&self, doing: &str, command: &Cmd) -> Result<Value> {
        self.ask(command).await.map_err(|error| classify(doing, &error))
    }

    /// Sends several commands in one request; an error of the server is the answer to its own command alone.
    pub async fn call_each(&self, doing: &str, commands: &Pipeline) -> Vec<Result<Value>> {
        let read = |answer: Value| answer.extract_error().map_err(|error| classify(doing, &error));
        match self.ask_each(commands).await {
            Ok(answers) => answers.into_iter().map(read).collect(),
            Err(error) => vec![Err(classify(doing, &error)); commands.len()],
        }
    }
}

/// Returns whether the server has no RESP3. HELLO is refused in many words: what is no matter of rights, of the database, or
/// passes, is taken for that. Should it be another command, RESP2 gets the same answer.
pub fn lacks_resp3(error: &RedisError) -> bool {
    let refused = || matches!(classify("", error).kind(), ErrorKind::Unsupported | ErrorKind::Server);
    error.kind() == RedisErrorKind::RESP3NotSupported
        || error.code().is_some() && refused() && !error.to_string().contains("switch database")
}

fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new().set_connection_timeout(Some(WITHIN)).set_response_timeout(Some(WITHIN))
}
