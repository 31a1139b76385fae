//! Connections that receive published messages: in RESP3, or in RESP2 if a proxy speaks nothing else.

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

/// The time limit of a connection attempt, and of each answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection that receives published messages and also sends commands.
///
/// In RESP3, a message that was published before an answer arrives before the answer, and messages end when the last clone
/// is dropped. Neither is true in RESP2.
#[derive(Clone, Debug)]
pub struct Subscription(MultiplexedConnection);

impl Subscription {
    /// Connects in RESP3. Each message of the server goes to `receive`, which runs in the connection's task and must not
    /// block.
    ///
    /// # Errors
    /// No connection in RESP3 can be made. [`lacks_resp3`] returns whether RESP2 may work.
    pub async fn in_resp3(
        address: &Address,
        receive: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> RedisResult<Self> {
        let push = move |push| {
            receive(push);
            Ok::<(), Infallible>(())
        };
        address.resp3().connect(&config().set_push_sender(push)).await.map(Self)
    }

    /// Connects in RESP2, with one connection for messages of this channel and another for commands. Messages go to
    /// `receive` until `closed` completes or the connection ends. Then `ended` is called.
    ///
    /// # Errors
    /// No connection can be made, or the server refuses the channel.
    pub async fn in_resp2(
        address: &Address,
        channel: &str,
        receive: impl Fn(PushInfo) + Send + Sync + 'static,
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
                receive(PushInfo { kind: PushKind::Message, data });
            }
            ended();
        });
        Ok(Self(connection))
    }

    /// Subscribes to a channel.
    ///
    /// # Errors
    /// The server refuses the channel, or the connection ends.
    pub async fn subscribe(&mut self, channel: impl ToRedisArgs) -> RedisResult<()> {
        self.0.subscribe(channel).await
    }

    /// Subscribes to all channels of a pattern.
    ///
    /// # Errors
    /// The server refuses the pattern, or the connection ends.
    pub async fn psubscribe(&mut self, pattern: impl ToRedisArgs) -> RedisResult<()> {
        self.0.psubscribe(pattern).await
    }

    /// Sends one command, and returns an error of `redis`.
    ///
    /// # Errors
    /// An error of the connection, or of the server.
    pub async fn ask(&self, command: &Cmd) -> RedisResult<Value> {
        self.0.clone().send_packed_command(command).await.and_then(Value::extract_error)
    }

    /// Sends several commands in one request. The answers may contain server errors.
    ///
    /// # Errors
    /// An error of the connection.
    pub async fn ask_each(&self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        self.0.clone().send_packed_commands(commands, 0, commands.len()).await
    }

    /// Sends one command.
    ///
    /// # Errors
    /// An error of the connection, or of the server, which has a code.
    pub async fn call(&self, doing: &str, command: &Cmd) -> Result<Value> {
        self.ask(command).await.map_err(|error| classify(doing, &error))
    }

    /// Sends several commands in one request. A server error fails only its own command.
    pub async fn call_each(&self, doing: &str, commands: &Pipeline) -> Vec<Result<Value>> {
        let read = |answer: Value| answer.extract_error().map_err(|error| classify(doing, &error));
        match self.ask_each(commands).await {
            Ok(answers) => answers.into_iter().map(read).collect(),
            Err(error) => vec![Err(classify(doing, &error)); commands.len()],
        }
    }
}

/// Returns whether the server refused RESP3.
///
/// Proxies refuse HELLO with many different errors. Every server error counts as a refusal, unless it is temporary or about
/// permissions or the database. If the error was about another command, a try with RESP2 returns it again.
pub fn lacks_resp3(error: &RedisError) -> bool {
    let refused = || matches!(classify("", error).kind(), ErrorKind::Unsupported | ErrorKind::Server);
    error.kind() == RedisErrorKind::RESP3NotSupported
        || error.code().is_some() && refused() && !error.to_string().contains("switch database")
}

fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CALL_TIMEOUT))
        .set_response_timeout(Some(CALL_TIMEOUT))
}
