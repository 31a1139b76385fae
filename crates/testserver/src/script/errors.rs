//! Errors in Lua.

use std::fmt;

use mlua::{Lua, Table, Value};

use crate::reply::ErrorReply;

/// The name of scripts in Lua's messages.
pub(super) const CHUNK: &str = "@user_script";
/// The number of stack levels in which the script of an error is searched.
const FRAMES: usize = 16;

/// A refused command. Scripts get a table with this text as `err`.
#[derive(Debug)]
struct RefusedCommand(String);

impl fmt::Display for RefusedCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RefusedCommand {}

pub(super) fn refused(refusal: ErrorReply) -> mlua::Error {
    mlua::Error::external(RefusedCommand(refusal.0.into_owned()))
}

/// Returns an error with the line of the caller, as Lua's own functions raise it.
pub(super) fn raised_at_line(lua: &Lua, message: &str) -> mlua::Error {
    let place = line(lua).map_or_else(String::new, |line| format!("{}:{line}: ", &CHUNK[1..]));
    mlua::Error::runtime(format!("{place}{message}"))
}

/// Returns the current line of the innermost script on the stack.
pub(super) fn line(lua: &Lua) -> Option<usize> {
    (0..FRAMES).find_map(|level| {
        let found = lua.inspect_stack(level, |frame| {
            let ours = frame.source().source.is_some_and(|source| source == CHUNK);
            frame.current_line().filter(|_| ours)
        });
        found.flatten()
    })
}

/// Converts an error of a Rust function to the table or text that a script gets.
pub(super) fn open(lua: &Lua, value: Value) -> mlua::Result<Value> {
    let Value::Error(error) = value else { return Ok(value) };
    let mut inner = &*error;
    while let mlua::Error::CallbackError { cause, .. } = inner {
        inner = cause;
    }
    if let Some(RefusedCommand(text)) = inner.downcast_ref() {
        return Ok(Value::Table(table(lua, text)?));
    }
    let text = match inner {
        mlua::Error::RuntimeError(text) => text.clone(),
        other => other.to_string(),
    };
    lua.create_string(text).map(Value::String)
}

pub(super) fn table(lua: &Lua, text: &str) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set("err", text)?;
    Ok(table)
}
