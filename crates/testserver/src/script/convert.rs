//! Conversions between Lua values and replies.

use bytes::Bytes;
use mlua::{Either, Lua, LuaString, Table, Value};

use crate::number;
use crate::reply::RedisReply;

/// Tables that are nested deeper become an error.
const MAX_REPLY_DEPTH: usize = 100;

/// Converts an argument of a command: a string, or a number in the format of C.
pub(super) fn argument(value: &Value) -> Option<Bytes> {
    Some(match value {
        Value::String(text) => Bytes::copy_from_slice(&text.as_bytes()),
        Value::Integer(number) => whole(*number),
        Value::Number(number) => number::print(*number).into(),
        _ => return None,
    })
}

/// Formats an integer. `%.17g` uses an exponent for more than 17 digits.
fn whole(number: i64) -> Bytes {
    match number.unsigned_abs() {
        0..100_000_000_000_000_000 => number.to_string().into(),
        _ => number::print(number as f64).into(),
    }
}

/// Converts a reply for a script, in the kinds of RESP2.
pub(super) fn to_lua(lua: &Lua, reply: &RedisReply) -> mlua::Result<Value> {
    let table = |name: &str, text: &str| -> mlua::Result<Value> {
        let table = lua.create_table_with_capacity(0, 1)?;
        table.raw_set(name, text)?;
        Ok(Value::Table(table))
    };
    Ok(match reply {
        RedisReply::Nil => Value::Boolean(false),
        RedisReply::Int(number) => Value::Number(*number as f64),
        RedisReply::Bulk(bytes) | RedisReply::Verbatim(bytes) => Value::String(lua.create_string(bytes)?),
        RedisReply::Status(word) => table("ok", word)?,
        RedisReply::Error(text) => table("err", text)?,
        RedisReply::Boolean(flag) => Value::Number(f64::from(u8::from(*flag))),
        RedisReply::Double(number) => Value::String(lua.create_string(number::print(*number))?),
        RedisReply::Map(pairs) => sequence(lua, pairs.iter().flat_map(|(key, value)| [key, value]))?,
        RedisReply::Array(items) | RedisReply::Set(items) | RedisReply::Push(items) => {
            sequence(lua, items.iter())?
        }
    })
}

fn sequence<'a>(lua: &Lua, items: impl Iterator<Item = &'a RedisReply>) -> mlua::Result<Value> {
    let items = items.map(|item| match item {
        RedisReply::Bulk(bytes) => string(lua, bytes),
        other => to_lua(lua, other).map(Either::Right),
    });
    Ok(Value::Table(lua.create_sequence_from(items.collect::<mlua::Result<Vec<_>>>()?)?))
}

/// Converts bytes to an item of a table. UTF-8 text needs no Lua reference for this.
pub(super) fn string<'a>(lua: &Lua, bytes: &'a [u8]) -> mlua::Result<Either<&'a str, Value>> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(Either::Left(text)),
        Err(_) => lua.create_string(bytes).map(Value::String).map(Either::Right),
    }
}

/// Converts the result of a script to a reply.
pub(super) fn from_lua(value: &Value, depth: usize) -> mlua::Result<RedisReply> {
    Ok(match value {
        Value::String(text) => RedisReply::Bulk(Bytes::copy_from_slice(&text.as_bytes())),
        Value::Integer(number) => RedisReply::Int(*number),
        Value::Number(number) => RedisReply::Int(number::truncated(*number)),
        Value::Boolean(true) => RedisReply::Int(1),
        Value::Table(_) if depth > MAX_REPLY_DEPTH => {
            RedisReply::Error("ERR reached lua stack limit".to_owned())
        }
        Value::Table(table) => from_table(table, depth)?,
        _ => RedisReply::Nil,
    })
}

/// Returns the text up to a zero byte, as C reads it.
pub(super) fn c_text(text: &LuaString) -> String {
    let bytes = text.as_bytes();
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn from_table(table: &Table, depth: usize) -> mlua::Result<RedisReply> {
    if let Value::String(text) = table.raw_get("err")? {
        return Ok(RedisReply::Error(c_text(&text)));
    }
    if let Value::String(text) = table.raw_get("ok")? {
        return Ok(RedisReply::Status(c_text(&text).into()));
    }
    let items = table.sequence_values::<Value>().map(|item| from_lua(&item?, depth + 1));
    Ok(RedisReply::Array(items.collect::<mlua::Result<_>>()?))
}
