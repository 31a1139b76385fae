//! Between Lua's values and the server's.

use bytes::Bytes;
use mlua::{Lua, LuaString, Table, Value};

use crate::number;
use crate::reply::Reply;

/// Deeper than this an answer is cut off.
const DEEPEST: usize = 100;

/// An argument of a command: a string, or a number as C prints it.
pub(super) fn argument(value: &Value) -> Option<Bytes> {
    Some(match value {
        Value::String(text) => Bytes::copy_from_slice(&text.as_bytes()),
        Value::Integer(number) => whole(*number),
        Value::Number(number) => number::print(*number).into(),
        _ => return None,
    })
}

/// Up to 17 digits a number is printed whole; above, `%.17g` has an exponent.
fn whole(number: i64) -> Bytes {
    match number.unsigned_abs() {
        0..100_000_000_000_000_000 => number.to_string().into(),
        _ => number::print(number as f64).into(),
    }
}

/// An answer, as a script sees it: in the forms of RESP2.
pub(super) fn to_lua(lua: &Lua, reply: &Reply) -> mlua::Result<Value> {
    let table = |name: &str, text: &str| -> mlua::Result<Value> {
        let table = lua.create_table_with_capacity(0, 1)?;
        table.raw_set(name, text)?;
        Ok(Value::Table(table))
    };
    Ok(match reply {
        Reply::Nil => Value::Boolean(false),
        Reply::Int(number) => Value::Number(*number as f64),
        Reply::Bulk(bytes) | Reply::Verbatim(bytes) => Value::String(lua.create_string(bytes)?),
        Reply::Status(word) => table("ok", word)?,
        Reply::Error(text) => table("err", text)?,
        Reply::Boolean(flag) => Value::Number(f64::from(u8::from(*flag))),
        Reply::Double(number) => Value::String(lua.create_string(number::print(*number))?),
        Reply::Map(pairs) => sequence(lua, pairs.iter().flat_map(|(key, value)| [key, value]))?,
        Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => sequence(lua, items.iter())?,
    })
}

fn sequence<'a>(lua: &Lua, items: impl Iterator<Item = &'a Reply>) -> mlua::Result<Value> {
    let table = lua.create_table_with_capacity(items.size_hint().0, 0)?;
    for (at, item) in items.enumerate() {
        table.raw_seti(at + 1, to_lua(lua, item)?)?;
    }
    Ok(Value::Table(table))
}

/// What a script returns, as an answer.
pub(super) fn from_lua(value: &Value, depth: usize) -> mlua::Result<Reply> {
    Ok(match value {
        Value::String(text) => Reply::Bulk(Bytes::copy_from_slice(&text.as_bytes())),
        Value::Integer(number) => Reply::Int(*number),
        Value::Number(number) => Reply::Int(number::truncated(*number)),
        Value::Boolean(true) => Reply::Int(1),
        Value::Table(_) if depth > DEEPEST => Reply::Error("ERR reached lua stack limit".to_owned()),
        Value::Table(table) => from_table(table, depth)?,
        _ => Reply::Nil,
    })
}

/// A text as C reads it: up to a zero byte.
pub(super) fn c_text(text: &LuaString) -> String {
    let bytes = text.as_bytes();
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn from_table(table: &Table, depth: usize) -> mlua::Result<Reply> {
    if let Value::String(text) = table.raw_get("err")? {
        return Ok(Reply::Error(c_text(&text)));
    }
    if let Value::String(text) = table.raw_get("ok")? {
        return Ok(Reply::Status(c_text(&text).into()));
    }
    let mut items = Vec::new();
    for at in 1.. {
        match table.raw_get::<Value>(at)? {
            Value::Nil => break,
            value => items.push(from_lua(&value, depth + 1)?),
        }
    }
    Ok(Reply::Array(items))
}
