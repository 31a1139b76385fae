//! The functions of Lua's library `bit` that keylapse's scripts use. They work on the lower 32 bits and return a signed
//! number.

use mlua::{Lua, Table, Variadic};

pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    add(lua, &library, "bxor", |all, word| all ^ word)?;
    add(lua, &library, "band", |all, word| all & word)?;
    add(lua, &library, "bor", |all, word| all | word)?;
    Ok(library)
}

/// Adds a function that joins its arguments from left to right.
fn add(lua: &Lua, library: &Table, name: &str, join: fn(i32, i32) -> i32) -> mlua::Result<()> {
    let function = move |_: &Lua, words: Variadic<f64>| {
        Ok(words.iter().map(|word| bits(*word)).reduce(join).unwrap_or_default())
    };
    library.raw_set(name, lua.create_function(function)?)
}

/// Returns the lower 32 bits of the nearest integer.
fn bits(word: f64) -> i32 {
    word.round_ties_even().rem_euclid(4_294_967_296.0) as u32 as i32
}
