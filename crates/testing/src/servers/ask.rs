//! Commands that the test kit sends to real servers, and the conversion of their replies.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue, RedisError, RedisResult, ToRedisArgs, Value};

use crate::RedisReply;
use crate::servers::failed;
use keylapse::Result;

/// Long enough for a busy machine. A server that hangs must not delay waits for other servers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Sends a command on a new connection, and converts the reply.
pub(super) async fn ask<T: FromRedisValue>(url: &str, words: &[impl AsRef<[u8]>]) -> Result<T> {
    let answer = raw(url, words).await;
    let answer = answer.and_then(|answer| Ok(redis::from_redis_value(answer)?));
    answer.map_err(|error| refused(words, &error))
}

/// Sends a command on a new connection. An error reply becomes an error.
pub(super) async fn raw(url: &str, words: &[impl AsRef<[u8]>]) -> RedisResult<Value> {
    let mut connection = connect(url).await?;
    command(words).query_async(&mut connection).await
}

/// Sends a command on a new connection. An error reply is a [`RedisReply::Error`].
pub(super) async fn reply(url: &str, words: &[impl AsRef<[u8]>]) -> Result<RedisReply> {
    match raw(url, words).await {
        Ok(answer) => Ok(reply_of(answer)),
        Err(error) if error.code().is_some() => Ok(error_of(&error)),
        Err(error) => Err(refused(words, &error)),
    }
}

/// Sends all commands in one pipeline. Returns an error if the server refuses one.
pub(super) async fn execute_all(url: &str, commands: &[String]) -> Result<()> {
    let mut pipeline = redis::pipe();
    for line in commands {
        pipeline.add_command(command(&words(line)));
    }
    let sent = async { pipeline.exec_async(&mut connect(url).await?).await };
    sent.await.map_err(|error: RedisError| refused(commands, &error))
}

/// Splits a command at its spaces. No argument may have a space.
pub(super) fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

async fn connect(url: &str) -> RedisResult<MultiplexedConnection> {
    let limits = AsyncConnectionConfig::new()
        .set_response_timeout(Some(ANSWER_TIMEOUT))
        .set_connection_timeout(Some(ANSWER_TIMEOUT));
    Client::open(url)?.get_multiplexed_async_connection_with_config(&limits).await
}

fn command(words: &[impl AsRef<[u8]>]) -> redis::Cmd {
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(word.as_ref());
    }
    command
}

fn refused(words: &[impl AsRef<[u8]>], error: &RedisError) -> keylapse::Error {
    let words: Vec<_> = words.iter().map(|word| word.as_ref().escape_ascii().to_string()).collect();
    failed(format!("the command {} failed: {error}", words.join(" "))).with_code(error.code())
}

fn reply_of(value: Value) -> RedisReply {
    match value {
        Value::Nil => RedisReply::Nil,
        Value::Int(number) => RedisReply::Int(number),
        Value::BulkString(bytes) => RedisReply::Bulk(bytes.into()),
        Value::Okay => RedisReply::Status("OK".into()),
        Value::SimpleString(word) => RedisReply::Status(word.into()),
        Value::Array(items) => RedisReply::Array(all(items)),
        Value::Set(items) => RedisReply::Set(all(items)),
        Value::Push { data, .. } => RedisReply::Push(all(data)),
        Value::Map(pairs) => {
            RedisReply::Map(pairs.into_iter().map(|(key, value)| (reply_of(key), reply_of(value))).collect())
        }
        Value::Attribute { data, .. } => reply_of(*data),
        Value::Double(number) => RedisReply::Double(number),
        Value::Boolean(flag) => RedisReply::Boolean(flag),
        Value::VerbatimString { text, .. } => RedisReply::Verbatim(text.into()),
        // The type is bytes, or a number if another crate enables the feature `num-bigint` of `redis`.
        Value::BigNumber(number) => RedisReply::Bulk(number.to_redis_args().concat().into()),
        Value::ServerError(error) => error_of(&error.into()),
        other => RedisReply::Error(format!("ERR unknown kind of reply: {other:?}")),
    }
}

/// Converts an error reply, with its code.
fn error_of(error: &RedisError) -> RedisReply {
    let words = [error.code().unwrap_or("ERR"), error.detail().unwrap_or_default()];
    RedisReply::Error(words.join(" ").trim_end().to_owned())
}

fn all(items: Vec<Value>) -> Vec<RedisReply> {
    items.into_iter().map(reply_of).collect()
}
