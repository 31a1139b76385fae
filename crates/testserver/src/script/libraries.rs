//! The libraries for scripts that are not part of Lua.

use mlua::{Lua, MultiValue, Table, Value};

use super::errors::raised_at_line;
use super::{bits, msgpack, structs};

pub(super) fn all(lua: &Lua) -> mlua::Result<Table> {
    let all = lua.create_table()?;
    all.raw_set("bit", bits::library(lua)?)?;
    all.raw_set("struct", structs::library(lua)?)?;
    all.raw_set("cmsgpack", msgpack::library(lua)?)?;
    Ok(all)
}

/// Adds a function to a library. Its errors have the line of the script, as Lua's own errors do.
pub(super) fn put<F>(lua: &Lua, library: &Table, name: &str, function: F) -> mlua::Result<()>
where
    F: Fn(&Lua, &[Value]) -> Result<Vec<Value>, String> + Send + Sync + 'static,
{
    let wrapped = lua.create_function(move |lua, args: MultiValue| {
        let args: Vec<Value> = args.into_iter().collect();
        let values = function(lua, &args).map_err(|message| raised_at_line(lua, &message))?;
        Ok(values.into_iter().collect::<MultiValue>())
    })?;
    library.raw_set(name, wrapped)
}

/// Returns an argument as a number. Converts strings as Lua does.
pub(super) fn number(lua: &Lua, args: &[Value], at: usize, function: &str) -> Result<f64, String> {
    let value = args.get(at).cloned().unwrap_or(Value::Nil);
    // The original `pack` pushes a marker behind its arguments, so its message has `nil` for the first missing one.
    let missing = if function == "pack" && args.len() == at { "nil" } else { "no value" };
    let kind = if args.len() > at { value.type_name() } else { missing };
    let number = lua.coerce_number(value.clone()).ok().flatten();
    let kind = if matches!(value, Value::Integer(_) | Value::Number(_)) { "number" } else { kind };
    number.ok_or_else(|| format!("bad argument #{} to '{function}' (number expected, got {kind})", at + 1))
}

/// Returns an argument as bytes. Formats numbers as Lua does.
pub(super) fn text(lua: &Lua, args: &[Value], at: usize, function: &str) -> Result<Vec<u8>, String> {
    let value = args.get(at).cloned().unwrap_or(Value::Nil);
    let kind = if args.len() > at { value.type_name() } else { "no value" };
    let text = match value {
        Value::String(_) | Value::Integer(_) | Value::Number(_) => lua.coerce_string(value).ok().flatten(),
        _ => None,
    };
    let wrong = || format!("bad argument #{} to '{function}' (string expected, got {kind})", at + 1);
    text.map(|text| text.as_bytes().to_vec()).ok_or_else(wrong)
}
