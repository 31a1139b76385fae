//! What a server answers, as the test kit shows it.

use redis::{RedisError, ToRedisArgs, Value};

use crate::Reply;

pub(super) fn of(value: Value) -> Reply {
    match value {
        Value::Nil => Reply::Nil,
        Value::Int(number) => Reply::Int(number),
        Value::BulkString(bytes) => Reply::Bulk(bytes.into()),
        Value::Okay => Reply::Status("OK".into()),
        Value::SimpleString(word) => Reply::Status(word.into()),
        Value::Array(items) => Reply::Array(all(items)),
        Value::Set(items) => Reply::Set(all(items)),
        Value::Push { data, .. } => Reply::Push(all(data)),
        Value::Map(pairs) => Reply::Map(pairs.into_iter().map(|(key, value)| (of(key), of(value))).collect()),
        Value::Attribute { data, .. } => of(*data),
        Value::Double(number) => Reply::Double(number),
        Value::Boolean(flag) => Reply::Boolean(flag),
        Value::VerbatimString { text, .. } => Reply::Verbatim(text.into()),
        // Bytes, or a number where another crate has turned on `num-bigint` of `redis`.
        Value::BigNumber(number) => Reply::Bulk(number.to_redis_args().concat().into()),
        Value::ServerError(error) => error_of(&error.into()),
        other => Reply::Error(format!("ERR an answer of a kind that is not known here: {other:?}")),
    }
}

/// The server's own error, with its code.
pub(super) fn error_of(error: &RedisError) -> Reply {
    let words = [error.code().unwrap_or("ERR"), error.detail().unwrap_or_default()];
    Reply::Error(words.join(" ").trim_end().to_owned())
}

fn all(items: Vec<Value>) -> Vec<Reply> {
    items.into_iter().map(of).collect()
}
