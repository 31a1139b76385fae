//! The libraries that scripts have besides Lua's own.

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

/// Puts a function into a library. What it refuses is raised with the script's line, as Lua's own errors.
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

/// A number, also from a string that is one, as Lua takes it.
pub(super) fn number(lua: &Lua, args: &[Value], at: usize, function: &str) -> Result<f64, String> {
    let value = args.get(at).cloned().unwrap_or(Value::Nil);
    // `pack` puts a mark behind its arguments, which stands for the first that is missing.
    let missing = if function == "pack" && args.len() == at { "nil" } else { "no value" };
    let kind = if args.len() > at { value.type_name() } else { missing };
    let number = lua.coerce_number(value.clone()).ok().flatten();
    let kind = if matches!(value, Value::Integer(_) | Value::Number(_)) { "number" } else { kind };
    number.ok_or_else(|| format!("bad argument #{} to '{function}' (number expected, got {kind})", at + 1))
}

/// The bytes of a string, or of a number as Lua prints it.
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
